"""Prefixes of a schedule as TensorIR texts. Needs AutoScheduler's TVM.

Every prefix of a record's steps is itself a loadable record: cut the list, load it, apply it to the compute
DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from data_builder.base.disk_set import DiskSet
from data_builder.base.prefixes import Prefixes, ReplayError
from wmsched.base.errors import WmschedError
from wmsched.schedules.steps import dump_record
from wmsched.schedules.types import Record
from wmsched.toolchain.resolve import autoscheduler_tvm

# TVMError is a RuntimeError, MetaSchedule's ScheduleError too; the FFI also raises the built-in kinds.
TVM_REFUSES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError)


#: What records are replayed for: a target that every TVM knows, and as many hardware parameters as it reads.
TARGET, HARDWARE = "llvm", (1, 64, 64, 0, 0, 0, 0, 0)


class Replay:
    """Replays schedules of one workload.

    Parameters
    ----------
    dag : tvm.auto_scheduler.ComputeDAG
        The workload's compute DAG.
    on_text, told
        See `prefixes.Prefixes`, also for what is held in memory.
    """

    def __init__(self, dag: Any, *, on_text: Callable[[str, str], None], told: DiskSet | None = None) -> None:
        self.dag = dag
        self._known = Prefixes(on_text, told)

    def __call__(self, record: Record) -> tuple[str, ...]:
        """Hashes of s0 .. sK for the K steps of `record`.

        Raises
        ------
        ReplayError
            TVM refuses a prefix. Texts met before it have been told to `on_text` all the same.
        """
        return self._known.states(record.steps, lambda length: prefix_text(self.dag, record, length))


def dag_of(row: Mapping[str, Any]) -> Any:
    """The compute DAG of a row of the workloads file.

    Raises
    ------
    WmschedError
        The row has no tensors, or TVM cannot load them.
    """
    autoscheduler_tvm()
    from wmsched.ansor.compute_dag import dag_from_row  # only now that the right TVM is imported

    return _made("compute DAG", lambda: dag_from_row(dict(row)))


def task_of(row: Mapping[str, Any], target: str) -> Any:
    """The search task of a row of the workloads file.

    Raises
    ------
    WmschedError
        The row has no tensors, or TVM cannot load them.
    """
    autoscheduler_tvm()
    from wmsched.ansor.compute_dag import task_from_row

    return _made("search task", lambda: task_from_row(dict(row), target=target))


def _made(what: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except TVM_REFUSES as error:
        raise WmschedError(f"the tensors of its workloads row make no {what}: {last_line(error)}") from error


def prefix_text(dag: Any, record: Record, length: int) -> str:
    """TensorIR after the first `length` steps of `record`.

    Raises
    ------
    ReplayError
        TVM refuses them.
    """
    from wmsched.ansor.compute_dag import state_text

    load = autoscheduler_tvm().auto_scheduler.measure_record.load_record_from_string
    line = loadable(replace(record, steps=record.steps[:length]))
    try:
        loaded, _ = load(line)
        return state_text(dag, dag.infer_bound_from_state(loaded.state))
    except TVM_REFUSES as error:
        raise ReplayError(length, last_line(error)) from error


def loadable(record: Record) -> str:
    """A record's line as this TVM takes it, with the same steps.

    Steps say nothing of the target, of which another TVM's log may name options that this one has not.
    """
    return dump_record(replace(record, target=TARGET, hardware=HARDWARE, target_host=""))


def last_line(error: BaseException) -> str:
    """TVM's messages are stack traces; what went wrong stands at the end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
