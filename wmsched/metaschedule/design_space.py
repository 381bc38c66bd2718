"""Design spaces of a MetaSchedule task, whose schedules are rows of decisions until TVM builds them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from wmsched.base.errors import LogError, WmschedError
from wmsched.metaschedule.native.cpu_postproc import cpu_program
from wmsched.metaschedule.native.reader import ReadTraces, TraceReader
from wmsched.metaschedule.rules.tensor_cores import is_tensor_core, sums_fit
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.search.decision_space import DecisionSpace
from wmsched.search.register_tiles import Tile
from wmsched.search.transfer import adapted
from wmsched.toolchain.resolve import is_cpu

__all__ = ["Drawn", "DrawnSpaces"]

logger = logging.getLogger("wmsched")

SHARED_COLUMN = "gpu_shared_share"  # share of a block's shared memory in use
THREADS_COLUMN, PIPELINE_STAGE_KEY = "gpu_threads", "software_pipeline_stage"
CHECKED_PER_SPACE = 3  # schedules of each space of a GPU built to compare TVM's result with the simulation;
CHECKED_ON_CPU = 1  # on a CPU each proposal is compared too
SETTLING_ROWS = 256  # rows sampled from a space to find its compute locations,
SETTLING_ROWS_WITHOUT_LOCATIONS = 24  # and from a space without such decisions
MIN_READ_SHARE = 0.25  # of the sampled rows; below it, the search would miss most of a space
Drawn = list[Any]  # [index of the space, row]


class DrawnSpaces:
    """Design spaces of one task, as its space generator made them.

    >>> spaces = DrawnSpaces(context, context.generate_design_space())
    >>> rows = spaces.random(16, np.random.default_rng(1))

    Parameters
    ----------
    context : tvm.s_tir.meta_schedule.TuneContext
    designs : sequence of Schedule
        ``context.generate_design_space()``.

    Raises
    ------
    LogError
        `decision_space` does not know a decision, or the C++ follower does not know the postprocessors.
    """

    def __init__(self, context: Any, designs: Sequence[Any]) -> None:
        self.mod = context.mod
        # Without unused instructions, as in the records of TVM's search.
        self.traces = [design.trace.simplified(remove_postproc=True) for design in designs]
        self.arguments = ms.arg_info.ArgInfo.from_entry_func(context.mod, remove_preproc=True)
        self.rules = list(context.space_generator.postprocs)
        #: Facts for the CPU's postprocessors; None for a GPU.
        self.cpu = cpu_program(context.mod, self.rules) if is_cpu(context.target) else None
        self.threads = int(context.target.attrs.get("max_threads_per_block", 1024))
        described = [trace_json(trace) for trace in self.traces]
        self.draws = [
            DecisionSpace(one, threads=self.threads, allows=sums_fit if is_tensor_core(trace) else None)
            for one, trace in zip(described, self.traces)
        ]
        self.copies = np.array([_pipeline_copies(one) for one in described])

    def __len__(self) -> int:
        return len(self.draws)

    def settle(self, reader: TraceReader, rng: np.random.Generator) -> None:
        """Restrict a CPU's compute locations to those that TVM allows; else many rows are one schedule.

        Raises
        ------
        LogError
            The reader reads too few schedules of a space.
        """
        if self.cpu is None:
            return
        counts = [SETTLING_ROWS if space.places else SETTLING_ROWS_WITHOUT_LOCATIONS for space in self.draws]
        drawn = [[which, row] for which, n in enumerate(counts) for row in self.draws[which].random(n, rng)]
        read, _ = self.read(reader, drawn)
        of = np.array([which for which, _ in drawn])
        for which, space in enumerate(self.draws):
            rows, fine = read.rows[of == which, : space.width], read.fine[of == which]
            known = len({*map(tuple, rows[fine].tolist())})
            if known < MIN_READ_SHARE * len({*map(tuple, rows.tolist())}) or not known:
                raise LogError("a space of which too few schedules are read in C++")
            space.settle(rows[fine])

    def random(self, count: int, rng: np.random.Generator) -> list[Drawn]:
        """Return up to `count` random schedules of each space; on a GPU those whose threads fit a block."""
        return [[which, row] for which, space in enumerate(self.draws) for row in space.random(count, rng)]

    def read(self, reader: TraceReader, drawn: Sequence[Drawn]) -> tuple[ReadTraces, NDArray[np.bool_]]:
        """Return the reader's columns of N schedules, and whether each fits a block's limits: bool [N]."""
        read = reader.drawn(self.traces, [which for which, _ in drawn], [row for _, row in drawn], self.cpu)
        shared, threads = (
            read.columns[:, reader.names.index(name)] for name in (SHARED_COLUMN, THREADS_COLUMN)
        )
        shared = shared * self.copies[[which for which, _ in drawn]] if len(drawn) else shared
        most = np.log2(1 + self.threads) + 1e-6
        return read, ~((shared > 1) | (threads > most))  # NaN of a space without threads

    def check(self, reader: TraceReader, rng: np.random.Generator) -> None:
        """Check on some schedules of each space that the reader agrees with TVM.

        Raises
        ------
        WmschedError
            It does not.
        """
        few = CHECKED_PER_SPACE if self.cpu is None else CHECKED_ON_CPU
        tried = self.random(few, rng)
        made = [self.candidate(drawn, checked=False) for drawn in tried]
        if {which for which, _ in tried} != set(range(len(self))) or None in made:
            raise WmschedError("TVM does not make schedules of a space")
        self.compare(reader, made, tried)

    def compare(self, reader: TraceReader, made: Sequence[Any], drawn: Sequence[Drawn]) -> None:
        """Check that the reader agrees with the schedules that TVM made.

        Raises
        ------
        WmschedError
            It does not.
        """
        theirs, (ours, _) = reader(made), self.read(reader, drawn)
        fine = ours.fine  # the others are never proposed
        same = np.array_equal(ours.columns[fine], theirs.columns[fine], equal_nan=True)
        if not (np.array_equal(ours.stages[fine], theirs.stages[fine]) and same):
            raise WmschedError("the postprocessors of a space are not followed")
        if self.cpu is None and not fine.all():
            raise WmschedError("schedules of a space are not read in C++")

    def settled(self, read: ReadTraces, place: int, drawn: Drawn) -> Drawn:
        """Return `drawn`, which was read as number `place`, with the compute locations that TVM takes."""
        which, row = drawn
        return [which, tuple(read.rows[place, : len(row)].tolist())] if self.draws[which].places else drawn

    def register_tile(self, drawn: Drawn) -> Tile | None:
        """Return the register tile of a schedule for a processor."""
        which, row = drawn
        return self.draws[which].register_tile(row)

    def of(self, trace: Any) -> Drawn | None:
        """Return the schedule of a trace's JSON; None for a trace of none of these spaces."""
        for which, space in enumerate(self.draws):
            row = space.row_of(trace)
            if row is not None:
                return [which, row]
        return None

    def adapted(self, trace: Any) -> Drawn | None:
        """Return the schedule nearest to one of a like program with other extents; None without one."""
        for which, space in enumerate(self.draws):
            row = adapted(space, trace)
            if row is not None:
                return [which, row]
        return None

    def candidate(self, drawn: Drawn, *, checked: bool = True) -> Any:
        """Return the `MeasureCandidate` that TVM makes of a schedule; None if TVM refuses.

        `checked` also refuses a GPU schedule that exceeds a block's limits.
        """
        which, row = drawn
        instructions = self.traces[which].insts
        decisions = {instructions[n]: value for n, value in self.draws[which].decisions(row)}
        rules = [rule for rule in self.rules if checked or not isinstance(rule, ms.postproc.VerifyGPUCode)]
        schedule = schedule_of(self.mod, instructions, decisions, rules)
        if schedule is None:
            return None
        arguments = self.arguments
        if self.cpu is not None and self.cpu.rewritten:  # layout rewrite changed their shapes
            arguments = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        return ms.MeasureCandidate(schedule, arguments)


def schedule_of(mod: Any, instructions: Any, decisions: Mapping[Any, Any], rules: Sequence[Any]) -> Any:
    """Return TVM's schedule of a trace's instructions with some decisions; None if TVM refuses.

    Parameters
    ----------
    rules : sequence of Postproc
        Postprocessors that a context has initialized.
    """
    try:
        schedule = Schedule(mod, seed=1, debug_mask=0, error_render_level="none", enable_check=False)
        Trace(instructions, decisions).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        return schedule if all(rule.apply(schedule) for rule in rules) else None
    except Exception as error:  # TVM's errors have no common base
        logger.debug("TVM cannot make a schedule: %s", str(error)[-300:])
        return None


def _pipeline_copies(trace: Any) -> int:
    """Return how many copies of its shared memory a software pipeline has, by its stages from 0 on."""
    stages_of = [
        values[1] for kind, values, key, _ in trace[0] if kind == "Annotate" and key[0] == PIPELINE_STAGE_KEY
    ]
    return max((1 + max(stages) for stages in stages_of), default=1)
