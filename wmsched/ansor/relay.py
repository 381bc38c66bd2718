"""Relay's side of AutoScheduler: tasks that TVM can build, and a model's build with what was found.

Relay rewrites the layouts of weights for the schedules that were found. TVM fails to where a weight's axes
have names that end in a digit (compute_dag.cc), as its own dense layers' have. Those of Relay models are
mended (`dense_axes`); other tasks of that kind, old pickles and old logs among them, go without here.
"""

from __future__ import annotations

import logging
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.relay_integration import TracingEnvironment

from wmsched.ansor.codegen import vector_math as in_vectors
from wmsched.ansor.compute_dag import layout_rewrite
from wmsched.ansor.dense_layout import mend, mend_models, upstream_key
from wmsched.base.cores import name_threads

logger = logging.getLogger("wmsched")

mend_models()


def buildable(task: Any) -> Any:
    """The search task, without a rewriting of its weights that TVM cannot build."""
    given = int(task.layout_rewrite_option)
    option = layout_rewrite(given, task.compute_dag, task.target)
    if option == given or task.task_input_names:  # inputs of its own: not relay's
        return task
    logger.info("wmsched: %s is tuned with its weights' layout as it is", task.desc)
    return auto_scheduler.SearchTask(
        workload_key=task.workload_key,
        compute_dag=task.compute_dag,
        target=task.target,
        target_host=task.target_host,
        hardware_params=task.hardware_params,
        layout_rewrite_option=option,
        desc=task.desc,
    )


class ApplyHistoryBest(auto_scheduler.ApplyHistoryBest):
    """TVM's context for ``relay.build``, which knows the logs of dense layers from before `mend` too.

    The schedules in such logs were measured with the weights as they are, and are built so. What is built
    for a processor within it has exp, tanh and the like in vectors, as the candidates of our `TaskScheduler`.

    Parameters
    ----------
    records
        As upstream's: a log's name, or pairs of a MeasureInput and its MeasureResult.
    n_lines, include_compatible
        As upstream's.
    vector_math : bool
        False: as TVM has it, calls of the C library (`ansor_math.vector_math`).

    Attributes
    ----------
    missed : list of str
        Functions worth tuning that the build found no record of.
    """

    def __init__(
        self,
        records: Any,
        n_lines: int | None = None,
        include_compatible: bool = False,
        *,
        vector_math: bool = True,
    ) -> None:
        self.missed: list[str] = []
        self.vector_math = vector_math
        self._building: Any = None
        super().__init__(records, n_lines=n_lines, include_compatible=include_compatible)

    def __enter__(self) -> ApplyHistoryBest:
        mend()
        name_threads(tvm)
        self._building = in_vectors(self.vector_math)
        self._building.__enter__()
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self._building.__exit__(None, None, None)

    def query(self, target: Any, workload_key: Any, has_complex_op: bool, dag: Any, func_name: Any) -> Any:
        state = super().query(target, workload_key, has_complex_op, dag, func_name)
        if state is None and TracingEnvironment.current is None:  # the final build
            if (old := upstream_key(dag)) is not None:
                state = super().query(target, old, has_complex_op, dag, func_name)
            if state is None and has_complex_op and str(func_name) not in self.missed:
                self.missed.append(str(func_name))
        return state
