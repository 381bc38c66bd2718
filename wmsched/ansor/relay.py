"""Relay tasks that TVM can build, and a model's build with the best schedules of a log.

Relay rewrites weight layouts for the schedules in a log. TVM 0.16 fails if a weight's axis has a name that
ends in a digit (compute_dag.cc), as in its own dense layers. `dense_layout` replaces those of Relay models.
Other such tasks, from old pickles and logs, are tuned without layout rewrite.
"""

from __future__ import annotations

import logging
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.relay_integration import TracingEnvironment, TracingMode

from wmsched.ansor.codegen import vector_math as in_vectors
from wmsched.ansor.compute_dag import layout_rewrite
from wmsched.ansor.cost_model import WorldModelCostModel
from wmsched.ansor.dense_layout import mend, mend_models, upstream_key
from wmsched.ansor.search_policy import SearchPolicy
from wmsched.base.cores import name_threads
from wmsched.toolchain.resolve import is_cpu

logger = logging.getLogger("wmsched")

FIRST_CHOICES = 2  # candidates of a search that ranks once; the first is taken

mend_models()


def buildable(task: Any) -> Any:
    """Return the search task, without a layout rewrite that TVM cannot build."""
    given = int(task.layout_rewrite_option)
    option = layout_rewrite(given, task.compute_dag, task.target)
    if option == given or task.task_input_names:  # a task with inputs of its own is not Relay's
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
    """TVM's context for ``relay.build``; it also finds dense layers in logs that were made without `mend`.

    >>> with ApplyHistoryBest("log.json"), tvm.transform.PassContext(opt_level=3, config=config):
    ...     library = relay.build(mod, target, params=params)

    Schedules of such logs were measured, and are built, without layout rewrite. A build for a processor gets
    vector code for exp, tanh and the like, as the candidates of our `TaskScheduler` do.

    Functions that the log lacks have TVM's own loops. With `construct` they have the schedule that a model
    ranks first, as upstream's ``ApplyHistoryBestOrSample`` has sampled ones.

    Parameters
    ----------
    records
        As upstream: a log's name, or pairs of a MeasureInput and its MeasureResult.
    n_lines, include_compatible
        As upstream.
    vector_math : bool
        False: TVM's calls of the C library (`codegen.vector_math`).
    construct : WorldModel, str or Path, optional
        The model, or the name or folder of a bundle, that constructs what the log lacks, on a processor.
    seed : int
        Of the construction; 1 or more.

    Attributes
    ----------
    missed : list of str
        Functions worth tuning for which the build found no record, and constructed none.
    constructed : list of str
        Functions with a constructed schedule.

    Raises
    ------
    UnknownName
        There is no such bundle.
    """

    def __init__(
        self,
        records: Any,
        n_lines: int | None = None,
        include_compatible: bool = False,
        *,
        vector_math: bool = True,
        construct: Any = None,
        seed: int = 1,
    ) -> None:
        self.missed: list[str] = []
        self.constructed: list[str] = []
        self.model = None if construct is None else WorldModelCostModel(construct, round_size=FIRST_CHOICES)
        self.seed = seed
        self._states: dict[tuple[str, str], Any] = {}  # constructed, or None where that failed
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
        current = TracingEnvironment.current
        old = upstream_key(dag) if state is None and current is None else None  # the final build
        if old is not None:
            state = super().query(target, old, has_complex_op, dag, func_name)
        # weights are laid out for a schedule before the final build asks for it by its new key
        builds = current is None or current.tracing_mode == TracingMode.PREPARE_LAYOUT_REWRITE
        if state is None and builds and has_complex_op and self.model is not None and is_cpu(target):
            state = self._constructed(self.model, target, workload_key, str(func_name))
        if state is None and current is None and has_complex_op and str(func_name) not in self.missed:
            self.missed.append(str(func_name))
        return state

    def _constructed(self, model: Any, target: Any, workload_key: Any, name: str) -> Any:
        key = str(target), str(workload_key)
        if key not in self._states:
            self._states[key] = None
            try:
                option = auto_scheduler.LayoutRewriteOption.get_target_default(target, True)
                task = auto_scheduler.SearchTask(
                    workload_key=workload_key, target=target, layout_rewrite_option=option, desc=name
                )
                policy = SearchPolicy(buildable(task), model, None, None, seed=self.seed, verbose=0)
                for _, _, found in policy.choose(FIRST_CHOICES)[:1]:
                    self._states[key] = found.state
                    self.constructed.append(name)
            except Exception as error:  # TVM's errors have no common base
                logger.warning(
                    "wmsched: %s has no constructed schedule (%s: %s): TVM's own loops are built",
                    name,
                    type(error).__name__,
                    str(error)[-300:],
                )
        return self._states[key]
