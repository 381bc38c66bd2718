"""The spaces of one of MetaSchedule's tasks, whose schedules are rows of numbers until TVM builds them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from wmsched.base.errors import LogError, WmschedError
from wmsched.metaschedule.native.cpu_postproc import cpu_program
from wmsched.metaschedule.native.reader import ReadTraces, TraceReader
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.search.decision_space import DecisionSpace
from wmsched.search.register_tiles import Tile
from wmsched.toolchain.resolve import is_cpu

__all__ = ["Drawn", "DrawnSpaces"]

logger = logging.getLogger("wmsched")

SHARED = "gpu_shared_share"  # of a block's, what a schedule takes
THREADS, STAGE = "gpu_threads", "software_pipeline_stage"
TRIED = 3  # schedules of each space that are built to see whether they are followed as TVM makes them,
ALL_TRIED = 9  # and of all spaces together, on a CPU: what is proposed is compared too
SETTLED = 256  # rows of a space that are drawn to see where its stages can be computed,
FEW = 24  # and of one without such choices
READ = 0.5  # of what they are in the end at least, so that what is never proposed is a space's corner
Drawn = list[Any]  # [number of the space, row]


class DrawnSpaces:
    """What the space generator of a task made.

    Parameters
    ----------
    context : tvm.s_tir.meta_schedule.TuneContext
    designs : sequence of Schedule
        Of ``context.generate_design_space()``.

    Raises
    ------
    LogError
        A space has decisions that are not drawn (`trace_draws`), or other postprocessors than are followed.
    """

    def __init__(self, context: Any, designs: Sequence[Any]) -> None:
        self.mod = context.mod
        # Without what is asked for and not used, as TVM's search leaves it: its records are of these spaces.
        self.traces = [design.trace.simplified(remove_postproc=True) for design in designs]
        self.arguments = ms.arg_info.ArgInfo.from_entry_func(context.mod, remove_preproc=True)
        self.rules = list(context.space_generator.postprocs)
        #: What is followed are a CPU's postprocessors; None: a GPU's.
        self.cpu = cpu_program(context.mod, self.rules) if is_cpu(context.target) else None
        self.threads = int(context.target.attrs.get("max_threads_per_block", 1024))
        described = [trace_json(trace) for trace in self.traces]
        self.draws = [DecisionSpace(one, threads=self.threads) for one in described]
        self.copies = np.array([_copies(one) for one in described])

    def __len__(self) -> int:
        return len(self.draws)

    def settle(self, reader: TraceReader, rng: np.random.Generator) -> None:
        """Find out where a CPU's stages can be computed; until then many rows are one schedule.

        Raises
        ------
        LogError
            There is a space of which the reader knows too little.
        """
        if self.cpu is None:
            return
        counts = [SETTLED if space.places else FEW for space in self.draws]
        drawn = [[which, row] for which, n in enumerate(counts) for row in self.draws[which].random(n, rng)]
        read, _ = self.read(reader, drawn)
        of = np.array([which for which, _ in drawn])
        for which, space in enumerate(self.draws):
            rows, fine = read.rows[of == which, : space.width], read.fine[of == which]
            known = len({*map(tuple, rows[fine].tolist())})
            if known < READ * len({*map(tuple, rows.tolist())}) or not known:
                raise LogError("a space of which too few schedules are read in C++")
            space.settle(rows[fine])

    def random(self, count: int, rng: np.random.Generator) -> list[Drawn]:
        """Up to `count` of each space; on a GPU those whose threads fit a block."""
        return [[which, row] for which, space in enumerate(self.draws) for row in space.random(count, rng)]

    def read(self, reader: TraceReader, drawn: Sequence[Drawn]) -> tuple[ReadTraces, NDArray[np.bool_]]:
        """What a reader says of schedules, and whether a block has such memory and threads: bool [N]."""
        read = reader.drawn(self.traces, [which for which, _ in drawn], [row for _, row in drawn], self.cpu)
        shared, threads = (read.columns[:, reader.names.index(name)] for name in (SHARED, THREADS))
        shared = shared * self.copies[[which for which, _ in drawn]] if len(drawn) else shared
        most = np.log2(1 + self.threads) + 1e-6
        return read, ~((shared > 1) | (threads > most))  # NaN of a space without threads

    def check(self, reader: TraceReader, rng: np.random.Generator) -> None:
        """That what is read of the spaces' schedules is what TVM makes of them.

        Raises
        ------
        WmschedError
            It is not.
        """
        few = TRIED if self.cpu is None else max(1, min(TRIED, ALL_TRIED // len(self)))
        tried = self.random(few, rng)
        made = [self.candidate(drawn, checked=False) for drawn in tried]
        if {which for which, _ in tried} != set(range(len(self))) or None in made:
            raise WmschedError("TVM does not make schedules of a space")
        self.compare(reader, made, tried)

    def compare(self, reader: TraceReader, made: Sequence[Any], drawn: Sequence[Drawn]) -> None:
        """That what TVM has made of some schedules is what is read of them.

        Raises
        ------
        WmschedError
            It is not.
        """
        theirs, (ours, _) = reader(made), self.read(reader, drawn)
        fine = ours.fine  # the others are never proposed
        same = np.array_equal(ours.columns[fine], theirs.columns[fine], equal_nan=True)
        if not (np.array_equal(ours.stages[fine], theirs.stages[fine]) and same):
            raise WmschedError("the postprocessors of a space are not followed")
        if self.cpu is None and not fine.all():
            raise WmschedError("schedules of a space are not read in C++")

    def settled(self, read: ReadTraces, place: int, drawn: Drawn) -> Drawn:
        """What TVM would make of the `place`-th of those that were read, `drawn`."""
        which, row = drawn
        return [which, tuple(read.rows[place, : len(row)].tolist())] if self.draws[which].places else drawn

    def register_tile(self, drawn: Drawn) -> Tile | None:
        """What a schedule of a processor keeps in registers."""
        which, row = drawn
        return self.draws[which].register_tile(row)

    def of(self, trace: Any) -> Drawn | None:
        """What a trace's JSON is here; None for a trace of none of these spaces."""
        for which, space in enumerate(self.draws):
            row = space.row_of(trace)
            if row is not None:
                return [which, row]
        return None

    def candidate(self, drawn: Drawn, *, checked: bool = True) -> Any:
        """The `MeasureCandidate` that TVM makes of a row; None where it refuses.

        `checked`: whether what takes more than a block may have is refused too.
        """
        which, row = drawn
        instructions = self.traces[which].insts
        decisions = {instructions[n]: value for n, value in self.draws[which].decisions(row)}
        try:
            schedule = Schedule(self.mod, seed=1, debug_mask=0, error_render_level="none", enable_check=False)
            Trace(instructions, decisions).apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            for rule in self.rules:
                if not checked and isinstance(rule, ms.postproc.VerifyGPUCode):
                    continue
                if not rule.apply(schedule):
                    return None
        except Exception as error:  # TVM's have no common base
            logger.debug("a drawn schedule cannot be made: %s", str(error)[-300:])
            return None
        arguments = self.arguments
        if self.cpu is not None and self.cpu.rewritten:  # they have other shapes now
            arguments = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        return ms.MeasureCandidate(schedule, arguments)


def _copies(trace: Any) -> int:
    """How many copies of its shared memory a software pipeline has; its stages are numbered from 0 on."""
    told = [values[1] for kind, values, key, _ in trace[0] if kind == "Annotate" and key[0] == STAGE]
    return max((1 + max(stages) for stages in told), default=1)
