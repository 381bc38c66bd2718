"""Made-up search on a machine that others disturb: its clock, its programs and its search; no TVM.

What is real: the paired timing with its references, their revisions and the corrections of records; how
trials are shared; the comparison of finalists.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from unittest import mock

from wmsched.measure import paired, reference
from wmsched.measure.buffer_offsets import timing
from wmsched.measure.clock_probe import ClockProbe
from wmsched.measure.corrections import Corrections
from wmsched.measure.evidence import Pace
from wmsched.measure.paired import costs_of
from wmsched.measure.reference import Patience
from wmsched.measure.reference_store import ReferenceStore
from wmsched.measure.turns import ratio, take_turns
from wmsched.search import sharing
from wmsched.search.sharing import Progress, next_task

SHAPES = [([4, 4], "float32")]
BEAT = 5e-4  # seconds of the clock probe's
BUILD = 0.15  # seconds between two programs
PLACES, CALLS = 3, 3
STALL = math.inf
ALLOWED = 1.05  # of the model's time over that of the undisturbed search
MOVED = 0.15  # of the trials, to other tasks
SERIAL, PARALLEL, PROBE = "serial", "parallel", "beat"


@dataclass(frozen=True)
class Spell:
    """From when to when programs take how many times as long; a neighbour delays single calls."""

    start: float
    end: float
    slowness: dict[str, float] = field(default_factory=dict)  # by kind of program; STALL: nothing runs
    slice_seconds: float = 0.0  # a neighbour's time slice, which a parallel call waits for
    chance: float = 0.0  # of a call to wait for it


class World:
    """Seconds of programs, by a clock that advances as they run."""

    def __init__(self, spells: Sequence[Spell] = (), seed: int = 0) -> None:
        self.now, self.spells, self.luck = 0.0, sorted(spells, key=lambda one: one.start), random.Random(seed)

    def run(self, seconds: float, kind: str = SERIAL) -> float:
        """Run a program of so many seconds at full speed; what it takes now."""
        began, left = self.now, seconds * self.luck.uniform(0.99, 1.01)
        while left > 0:
            active = [one for one in self.spells if one.start <= self.now < one.end]
            ends = [one.end for one in active]
            until = min([*ends, *(one.start for one in self.spells if one.start > self.now), math.inf])
            slow = math.prod(one.slowness.get(kind, 1.0) for one in active)
            for one in active:
                if kind == PARALLEL and one.chance and self.luck.random() < one.chance:
                    self.now += one.slice_seconds * self.luck.uniform(0.3, 1.0)
            if slow == STALL:
                self.now = until
            elif left * slow <= until - self.now:
                self.now += left * slow
                left = 0.0
            else:
                left -= max(until - self.now, 1e-9) / slow
                self.now = max(until, self.now)
        return self.now - began

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass(kw_only=True)
class MadeUp(Progress):
    """A task whose candidates are known beforehand, in the order in which a search finds them."""

    name: str
    kind: str
    candidates: list[float]  # seconds alone
    in_model: list[float]  # seconds in the model
    weight: int = 1


def made_up_tasks(seed: int, count: int = 14, candidates: int = 100) -> list[MadeUp]:
    """Tasks of a model: a few heavy ones, many light ones; a later candidate is better at times."""
    luck = random.Random(seed)
    tasks = []
    for number in range(count):
        best = 1e-3 * 10 ** luck.uniform(-1.3, 0.3)
        slower = [
            best * (1.02 + abs(luck.gauss(0, 1.0)) * (0.2 + 3 / (1 + place / 4)))
            for place in range(candidates)
        ]
        inside = [seconds * luck.uniform(0.97, 1.06) for seconds in slower]
        tasks.append(
            MadeUp(
                name=f"task{number}",
                kind=PARALLEL if number % 3 else SERIAL,
                candidates=slower,
                in_model=inside,
                weight=luck.choice((1, 1, 2, 4)),
            )
        )
    return sorted(tasks, key=lambda task: -task.weight * task.candidates[0])


@dataclass
class Found:
    """What a search came to."""

    tasks: list[MadeUp]
    chosen: dict[str, int]  # candidate of each task
    revised: int  # records that were corrected
    ended: dict[str, float]  # when each stage ended

    @property
    def model(self) -> float:
        """Seconds of the model at full speed, with what was chosen."""
        return sum(task.weight * task.in_model[self.chosen[task.name]] for task in self.tasks)

    def shares(self) -> dict[str, float]:
        """Each task's part of the trials."""
        whole = sum(task.trials for task in self.tasks)
        return {task.name: task.trials / whole for task in self.tasks}

    def true_shares(self) -> dict[str, float]:
        """Each task's part of the model's time at full speed, with the best of its candidates so far."""
        true = {task.name: task.weight * min(task.candidates[: max(1, task.trials)]) for task in self.tasks}
        return {name: seconds / sum(true.values()) for name, seconds in true.items()}

    def over_share(self) -> list[str]:
        """Tasks above a third of the trials that have less than a third of the time."""
        shares, true = self.shares(), self.true_shares()
        limit = sharing.MAX_SHARE
        return [name for name in shares if shares[name] > limit + 0.02 and true[name] < 0.9 * limit]


@contextmanager
def clock_of(world: World) -> Iterator[None]:
    """Give the world's time to the modules that time programs."""
    own = SimpleNamespace(monotonic=lambda: world.now, sleep=world.sleep)
    with mock.patch.object(paired, "time", own), mock.patch.object(reference, "time", own):
        yield


class Search:
    """A search of made-up tasks, as `wmsched.metaschedule.task_scheduler` does it.

    `robust=False` is as it was before references were revised and shares limited.
    """

    def __init__(
        self, world: World, folder: Path, *, robust: bool = True, corrections: Corrections | None = None
    ) -> None:
        self.world, self.folder, self.robust = world, folder, robust
        self.corrections = corrections or Corrections()
        self.store = ReferenceStore(self.corrections.folder, self._load, revises=robust)
        self.store.patience = Patience(world.sleep if robust else lambda _: None, lambda: world.now)
        place = self.store.folder
        self.store._pulse = ClockProbe(place / "pulse.json", lambda: world.run(BEAT, PROBE), world.sleep)
        self.store._pace = Pace(place / "pace.jsonl", lambda: world.now)
        self.entries: dict[str, tuple[MadeUp, int]] = {}
        self.ended: dict[str, float] = {}
        self.revised = 0

    def _load(self, path: str, arguments: object):
        name, seconds = Path(path).read_text().split()
        return lambda count: tuple(self.world.run(float(seconds), name) for _ in range(count))

    def run(self, tasks: list[MadeUp], trials: int, size: int = 4) -> Found:
        """Search, and choose among the finalists."""
        done = 0
        with clock_of(self.world):
            while done < trials:
                with mock.patch.object(sharing, "MAX_SHARE", sharing.MAX_SHARE if self.robust else 1.0):
                    task = next_task(tasks, size, trials if self.robust else math.inf)
                assert task is not None
                for _ in range(min(size, trials - done, len(task.candidates) - task.trials)):
                    self._measure(task)
                    done += 1
                task.finished = task.trials == len(task.candidates)
                self.end_round(task, tasks)
            return self.finish(tasks)

    def end_round(self, task: MadeUp, tasks: Sequence[MadeUp]) -> None:
        task.end_round()
        if all(one.rounds for one in tasks):
            self.ended.setdefault("first rounds", self.world.now)

    def finish(self, tasks: list[MadeUp]) -> Found:
        """Choose among the finalists."""
        self.ended["candidates"] = self.world.now
        chosen = self._finalists(tasks)
        self.ended["finalists"] = self.world.now
        return Found(tasks, chosen, self.revised, self.ended)

    def _measure(self, task: MadeUp) -> None:
        library, seconds = self.time(task)
        self.entries[library] = task, task.trials
        task.take(seconds)
        for program, factor in self.corrections.due().items():
            one, trial = self.entries[program]
            one.correct({trial: factor})
            self.revised += 1

    def time(self, task: MadeUp) -> tuple[str, float]:
        """Build a task's next candidate and time it; its library and its seconds."""
        self.world.sleep(BUILD)
        number = task.trials
        library = self.folder / f"{task.name}-{number}.so"
        library.write_text(f"{task.kind} {task.candidates[number]}")

        def prepare(place: int):
            def evaluate(count: int) -> tuple[float, ...]:
                return tuple(self.world.run(task.candidates[number], task.kind) for _ in range(count))

            return timing(evaluate, 1, 1.0, CALLS)

        costs = costs_of(PLACES, prepare, self.store, task.name, library, SHAPES, 20.0)
        return str(library), fmean(costs)

    def _finalists(self, tasks: list[MadeUp], count: int = 4, turns: int = 15) -> dict[str, int]:
        """As `wmsched.tune.in_model_selection.choose`."""
        ranks = [sorted(range(len(t.times)), key=t.times.__getitem__)[:count] for t in tasks]
        best = [(0.99, 0)] * len(tasks)

        def inside(rank: int) -> list[float]:
            return [
                task.weight * self.world.run(task.in_model[ranked[min(rank, len(ranked) - 1)]], task.kind)
                for task, ranked in zip(tasks, ranks)
            ]

        for rank in range(1, count):

            def turn(number: int, rank: int = rank) -> list[tuple[float, float]]:
                if number % 2:
                    second, first = inside(rank), inside(0)
                else:
                    first, second = inside(0), inside(rank)
                return list(zip(first, second))

            taken = take_turns(turn, turns) if self.robust else [turn(2 * n) for n in range(turns)]
            for k in range(len(tasks)):
                pairs = [one[k] for one in taken]
                found = ratio(pairs) if self.robust else sorted(b / a for a, b in pairs)[turns // 2]
                if found < best[k][0]:
                    best[k] = found, rank
        return {task.name: ranks[k][best[k][1]] for k, task in enumerate(tasks)}


# What disturbs a machine from a start to an end.

Made = Callable[[float, float, random.Random], list[Spell]]


def everywhere(slowness: float) -> dict[str, float]:
    return dict.fromkeys((SERIAL, PARALLEL, PROBE), slowness)


def stalls(start: float, end: float, luck: random.Random) -> list[Spell]:
    begun = [luck.uniform(start, end) for _ in range(12)]
    return [
        Spell(one, one + luck.uniform(0.005, 0.4 * min(1.0, end - start)), everywhere(STALL)) for one in begun
    ]


def spell(slowness: dict[str, float], part: float = 0.4) -> Made:
    def made(start: float, end: float, luck: random.Random) -> list[Spell]:
        begin = start + (end - start) * luck.uniform(0, 1 - part)
        return [Spell(begin, begin + part * (end - start), slowness)]

    return made


def clock_changes(start: float, end: float, luck: random.Random) -> list[Spell]:
    places = sorted(luck.uniform(start, end) for _ in range(6))
    return [
        Spell(a, b, everywhere(luck.uniform(1.1, 1.6)))
        for a, b in zip(places[::2], places[1::2], strict=True)
    ]


def neighbour(start: float, end: float, luck: random.Random) -> list[Spell]:
    (one,) = spell({PARALLEL: 1.3}, 0.5)(start, end, luck)
    return [Spell(one.start, one.end, one.slowness, slice_seconds=6e-3, chance=0.3)]


KINDS: dict[str, Made] = {
    "stalls": stalls,
    "slow spell": spell(everywhere(1.7)),
    "spell of waiting for cores": spell({PARALLEL: 20.0, SERIAL: 1.3}),
    "clock changes": clock_changes,
    "neighbour": neighbour,
    "clock probe alone is slow": spell({PROBE: 2.5}),
}


def stages(found: Found) -> dict[str, tuple[float, float]]:
    """From when to when each stage of an undisturbed search is."""
    first, candidates, finalists = (found.ended[name] for name in ("first rounds", "candidates", "finalists"))
    return {
        "reference": (0.0, first),
        "candidates": (first, candidates),
        "finalists": (candidates, finalists),
    }


def moved(found: Found, other: Found) -> float:
    """Share of the trials that went to other tasks."""
    one, two = found.shares(), other.shares()
    return sum(abs(one[name] - two[name]) for name in one) / 2


def check(found: Found, other: Found) -> None:
    """A disturbed search chooses nearly what an undisturbed one does, and shares its trials alike."""
    assert found.model <= ALLOWED * other.model
    assert moved(found, other) <= MOVED
    assert found.over_share() == []
