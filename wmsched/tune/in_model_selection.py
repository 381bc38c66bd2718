"""In-model selection: the best few schedules of each function, timed inside the model.

A search times a candidate alone. In the model, other functions leave caches, TLBs and prefetchers in another
state. On an Emerald Rapids Xeon the best schedule of GPT-2's feed-forward product takes 4.76 ms alone and 5.6
in the model; the second takes 5.09 and 4.9. One build with the second-best schedule of every function times
all of these at once.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord

from wmsched.base.cores import unbound
from wmsched.base.memory import available_bytes
from wmsched.measure.call_times import by_calls
from wmsched.measure.turns import ratio, take_turns
from wmsched.metaschedule.construct import is_constructed
from wmsched.relax.passes.pipeline import visit_functions
from wmsched.schedules import database as meta_database
from wmsched.schedules.database import mean
from wmsched.tune import folder as tuned_folder

logger = logging.getLogger("wmsched")

WITHIN = 1.5  # times the best time by itself: what is slower has no chance
WORTH = 0.99  # of the first one's time in the model, which a later one must be below to take its place
SHARE = 0.002  # of the model's time: functions below are not worth a build
ROUNDS = (3, 15)  # runs of the model with a set of schedules, at least and at most
SECONDS = 10.0  # for the runs with a set and the first, more than the least
DOUBTFUL = 8.0  # times as others' records say of their time in the model, or the inverse; warm caches make 3
LEAST_WITNESSES = 3  # functions that are timed in the model, for one of them to be doubtful
CALL_SECONDS = 2e-5  # of a function: below it the call itself counts
COPIES = 5  # of the weights: the module's, two builds', and what writing and reading one takes
PREPACKED = re.compile(r"_prepacked(_?\d+)?$")  # what TVM calls a function whose weights are laid out

_normalized = tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")


@dataclass
class Finalists:
    """One program of the model.

    Parameters
    ----------
    workload : tvm.s_tir.meta_schedule.database.Workload
    records : list of TuningRecord
        Its schedules, the fastest by itself first.
    functions : set of str
        The model's functions that it is the program of.
    chosen : int
        Which of the records it gets.
    first, seconds : float
        Of all its calls in one run of the model, with the first and with the one chosen; NaN where it is not
        known.
    calls : int
        In one run of the model; 0 where they were not timed.
    """

    workload: Any
    records: list[Any]
    functions: set[str] = field(default_factory=set)
    chosen: int = 0
    first: float = math.nan
    seconds: float = math.nan
    calls: int = 0

    def keep_first(self) -> None:
        """Give it the schedule that is fastest by itself."""
        self.chosen, self.seconds = 0, self.first


def top_schedules(prepared: Any, database: Any, count: int) -> list[Finalists]:
    """Up to `count` schedules of each program of a prepared module that the database has any of."""
    found: list[Finalists] = []
    for variable, function in prepared.functions.items():
        if not isinstance(function, tvm.tirx.PrimFunc):
            continue
        mod = _normalized(function)
        if database.has_workload(mod):
            workload = database.commit_workload(mod)
            one = program_of(workload, found)
            if one is None:
                one = Finalists(workload, [])
                found.append(one)
            one.functions.add(str(variable.name_hint))
    for record in database.get_all_tuning_records():
        one = program_of(record.workload, found)
        if one is not None and not math.isnan(mean(record.run_secs or ())):
            one.records.append(record)
    for one in found:
        times = sorted(((mean(record.run_secs), k) for k, record in enumerate(one.records)))
        one.records = [one.records[k] for seconds, k in times[:count] if seconds <= WITHIN * times[0][0]]
    return [one for one in found if one.records]


def normalized_functions(prepared: Any) -> dict[str, Any]:
    """Each function of a prepared module as MetaSchedule's workloads have it, by name."""
    return {
        str(variable.name_hint): _normalized(function)
        for variable, function in prepared.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def program_of(workload: Any, programs: Iterable[Finalists]) -> Finalists | None:
    """The one that a database's workload is of; None if there is none."""
    return next((one for one in programs if one.workload.same_as(workload)), None)


def write(programs: Iterable[Finalists], database: Any) -> Any:
    """Put the chosen schedule of each program into a database, which is returned."""
    for one in programs:
        record = one.records[one.chosen]
        workload = database.commit_workload(one.workload.mod)
        entry = TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
        database.commit_tuning_record(entry)
    return database


def save(programs: Iterable[Finalists], folder: Path) -> None:
    """Leave the chosen schedules as a database of MetaSchedule's in a folder, in place of what is there."""
    with tuned_folder.scratch(folder.parent) as scratch:
        fresh, old = scratch / "fresh", scratch / "old"
        fresh.mkdir()
        write(programs, database_of(fresh))
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)


def database_of(folder: Path) -> Any:
    """MetaSchedule's database of a folder's two files."""
    return ms.database.JSONDatabase(
        path_workload=str(folder / meta_database.WORKLOADS),
        path_tuning_record=str(folder / meta_database.RECORDS),
    )


def choose(
    programs: Sequence[Finalists],
    first: Path,
    build: Callable[[Any, Path], None],
    machine: Callable[[Path], tuple[Any, Sequence[Any]]],
    scratch: Path,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    timed: Callable[[Path], Any] | None = None,
) -> bool:
    """Set which schedule each program gets, by its time in the model; whether that changes any.

    Each set of schedules is run in turns with the first ones, and the ratio counts
    (`wmsched.measure.turns.ratio`): a machine that slows down for a while slows both. Disturbed turns are
    followed by more.

    Parameters
    ----------
    first : Path
        The library with the first schedule of each.
    build : callable (database, path)
        Makes a library of the model.
    machine : callable (path) -> (VirtualMachine, sequence)
        Loads it, with the arguments of ``main``.
    scratch : Path
        Folder for libraries.
    timed : callable (path), optional
        Loads a library elsewhere, in place of `machine`; what it returns is used as `Timed` is.

    Raises
    ------
    KeyboardInterrupt
        The user wants to leave.
    """
    timed = timed or (lambda path: Timed(programs, *machine(path)))
    with timed(first) as base:
        start = time.perf_counter()
        spent = base.run()
        run = time.perf_counter() - start
        firsts = [spent]
        heavy = [k for k, seconds in enumerate(spent) if seconds > SHARE * sum(spent)]
        rounds = min(max(int(SECONDS / max(2 * run, 1e-9)), ROUNDS[0]), ROUNDS[1])
        best = dict.fromkeys(heavy, WORTH)
        for rank in range(1, max((len(programs[k].records) for k in heavy), default=1)):
            tried = [k for k in heavy if rank < len(programs[k].records)]
            others = [replace(one, chosen=rank if k in tried else 0) for k, one in enumerate(programs)]
            library = (
                scratch / f"finalists{rank}.so"
            )  # a name of its own: one that is loaded is not read again
            try:
                build(write(others, ms.database.MemoryDatabase()), library)
                with timed(library) as other:
                    turns = take_turns(functools.partial(_turn, base, other), rounds, compared=tried)
            except Exception as error:  # of TVM's build or of what it built: the first schedules stay
                logger.info("schedules of rank %d are not tried in the model: %s", rank, str(error)[-300:])
                turns = []
            finally:
                library.unlink(missing_ok=True)
            if interrupted():
                raise KeyboardInterrupt
            if not turns:
                continue
            firsts += [[first for first, _ in pairs] for pairs in turns]
            for k in tried:
                found = ratio([pairs[k] for pairs in turns])
                if found < best[k]:
                    best[k], programs[k].chosen = found, rank
        for one, calls in zip(programs, base.calls, strict=True):
            one.calls = calls
    for k, one in enumerate(programs):
        one.first = statistics.median(spent[k] for spent in firsts) or math.nan  # it may be a view there
        one.seconds = one.first * (best[k] if one.chosen else 1.0)
    return any(one.chosen for one in programs)


def _turn(base: Any, other: Any, number: int) -> list[tuple[float, float]]:
    """Seconds of each program in two libraries, which take turns in being first."""
    if number % 2:
        second, first = other.run(), base.run()
    else:
        first, second = base.run(), other.run()
    return list(zip(first, second, strict=True))


def doubtful(programs: Sequence[Finalists]) -> dict[int, float]:
    """Return the programs whose records disagree with the model, by place, and what their times lack.

    In the model all functions run within the same moments. A function whose record says several times as
    much, or as little, as the others' was measured beside a wrong reference.
    """
    known = {
        k: one.first / one.calls / mean(one.records[0].run_secs)
        for k, one in enumerate(programs)
        if one.calls and one.first / one.calls > CALL_SECONDS and not is_constructed(one.records[0])
    }
    if len(known) < LEAST_WITNESSES:
        return {}
    usual = statistics.median(known.values())
    return {k: found / usual for k, found in known.items() if not 1 / DOUBTFUL < found / usual < DOUBTFUL}


def correct_records(programs: Sequence[Finalists], folder: Path) -> dict[int, float]:
    """Correct the records of the `doubtful` programs in a folder's database; return these programs.

    A later run that resumes the folder shares its trials by the corrected times.
    """
    wrong, path = doubtful(programs), folder / meta_database.RECORDS
    if not wrong or not path.is_file():
        return {}
    hashes = [orjson.loads(line)[0] for line in (folder / meta_database.WORKLOADS).read_bytes().splitlines()]
    factors = {str(programs[k].workload.as_json()[0]): factor for k, factor in wrong.items()}
    by_workload = {place: factors[one] for place, one in enumerate(hashes) if one in factors}
    lines = [orjson.loads(line)[0] for line in path.read_bytes().splitlines()]
    meta_database.rescale(
        path, {number: by_workload[one] for number, one in enumerate(lines) if one in by_workload}
    )
    return wrong


class Timed:
    """A library whose functions are timed as the model runs; the first run, which sets things up, is made."""

    def __init__(self, programs: Sequence[Finalists], machine: Any, arguments: Sequence[Any]) -> None:
        self.machine, self.arguments = machine, arguments
        self.places = {name: k for k, one in enumerate(programs) for name in one.functions}
        self.seconds, self.calls = [0.0] * len(programs), [0] * len(programs)
        self.started: list[float] = []  # a function may call others
        self.main = by_calls(machine)
        with unbound():
            self.main(*arguments)
        machine.set_instrument(self._called)

    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *_: Any) -> None:
        """Let go of the machine, and with it of the weights: the two would hold each other for ever."""
        self.machine.set_instrument(_ignored)

    def run(self) -> list[float]:
        """Seconds of each program in one run of the model, all its calls together."""
        self.seconds, self.calls = [0.0] * len(self.seconds), [0] * len(self.calls)
        with unbound():
            self.main(*self.arguments)
        return self.seconds

    @contextmanager
    def plain(self) -> Iterator[Callable[[], Any]]:
        """A call of the model alone, without a look at its programs, until the block ends."""
        self.machine.set_instrument(_ignored)
        main = self.machine["main"]
        try:
            with unbound():
                yield lambda: main(*self.arguments)
        finally:
            self.machine.set_instrument(self._called)

    def _called(self, _function: Any, name: str, before: bool, _result: Any, *_arguments: Any) -> int:
        if before:
            self.started.append(time.perf_counter())
        else:
            spent = time.perf_counter() - self.started.pop()
            place = place_of(str(name), self.places)
            if place is not None:
                self.seconds[place] += spent
                self.calls[place] += 1
        return int(relax.VMInstrumentReturnKind.NO_OP)


def _ignored(*_: Any) -> int:
    return int(relax.VMInstrumentReturnKind.NO_OP)


def place_of(name: str, places: Mapping[str, int]) -> int | None:
    """The place of a function under the name that it has in the library; None for a function without one."""
    found = places.get(name)
    return places.get(PREPACKED.sub("", name)) if found is None else found


def room(prepared: Any) -> bool:
    """Whether the memory that is free holds the model's weights as often as `choose` needs them."""
    weights = 0

    def visit(node: Any) -> None:
        nonlocal weights
        if isinstance(node, tvm.ir.Constant) and isinstance(node.value, tvm.runtime.Tensor):
            weights += math.prod(node.value.shape) * node.value.dtype.itemsize

    visit_functions(prepared, visit)
    return COPIES * weights < available_bytes()
