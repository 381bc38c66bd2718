"""Prefixes of a trace as TensorIR texts. Needs MetaSchedule's TVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_builder.base.disk_set import DiskSet
from data_builder.base.prefixes import Prefixes, ReplayError
from data_builder.base.replay import TVM_REFUSES, last_line
from wmsched.base.errors import WmschedError
from wmsched.schedules.traces import Steps, trace_of


def module_of(row: Any) -> Any:
    """The module of a database's workload line ``[hash, module]``.

    Raises
    ------
    WmschedError
        TVM cannot load it.
    """
    from tvm.s_tir.meta_schedule.database import Workload

    try:
        return Workload.from_json(row).mod
    except TVM_REFUSES as error:
        raise WmschedError(f"its module cannot be loaded: {last_line(error)}") from error


class TraceReplay:
    """Replays schedules of one module, each distinct prefix of steps once.

    A step is one instruction that changes the program, with the lookups before it, which do not: so the
    prefixes of the steps give the program after every prefix of the instructions.

    Parameters
    ----------
    mod : tvm.IRModule
        The unscheduled program.
    on_text, told
        See `data_builder.base.prefixes.Prefixes`, also for what is held in memory.
    """

    def __init__(self, mod: Any, *, on_text: Callable[[str, str], None], told: DiskSet | None = None) -> None:
        self.mod = mod
        self._known = Prefixes(on_text, told)

    def __call__(self, steps: Steps) -> tuple[str, ...]:
        """Hashes of s0 .. sK for K steps.

        Raises
        ------
        ReplayError
            TVM refuses a prefix. Texts met before it have been told to `on_text` all the same.
        """
        return self._known.states(steps, lambda length: self.text(steps[:length]))

    def text(self, steps: Steps) -> str:
        """TensorIR after all of `steps`."""
        from tvm.s_tir import Schedule
        from tvm.s_tir.schedule import Trace

        from wmsched.metaschedule.workload import program_text

        if any(kind == "Tensorize" for _, rows in steps for kind, *_ in rows):
            from wmsched.metaschedule.intrinsics import import_intrinsics

            import_intrinsics()  # parses them all, which takes seconds, so not always
        try:
            schedule = Schedule(self.mod, error_render_level="none")
            Trace.apply_json_to_schedule(trace_of(steps), schedule)
            return program_text(schedule.mod)
        except TVM_REFUSES as error:
            raise ReplayError(len(steps), last_line(error)) from error
