"""Bases of references that later timings speak against, corrections, bounds and shares; no TVM."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.unit.machines import SHAPES, Built
from wmsched.measure.bounds import Machine, measured
from wmsched.measure.clock_probe import PRODUCTS, SIDE
from wmsched.measure.corrections import Corrections
from wmsched.measure.evidence import KEPT, MAX_GAP_SECONDS, Pace
from wmsched.measure.paired import costs_of
from wmsched.measure.reference import PAUSE_SECONDS, PAUSED_SECONDS, Patience
from wmsched.measure.reference_store import ReferenceStore
from wmsched.measure.turns import MAX_TURNS_FACTOR, agree, ratio, take_turns
from wmsched.search.sharing import Progress, next_task, time_share


class Slowed(Built):
    """Libraries on a machine of which `slow` says how many times as long each takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.slow: dict[float, float] = {}
        self.corrections = Corrections()

    def take(self, seconds: float) -> float:
        return seconds * self.slow.get(seconds, 1.0)

    def load(self, path: str, arguments):
        seconds = float(Path(path).read_text())
        return lambda count: (self.take(seconds),) * count

    def store(self) -> ReferenceStore:
        place = Path(self.corrections.folder)
        (place / "pulse.json").write_text("1e-4")
        store = ReferenceStore(place, self.load, revises=True)
        store.pulse().beat = lambda: 1e-4
        return store

    def measure(self, store: ReferenceStore, key: str, seconds: float, name: str) -> float:
        """The cost of a program of a task, as it is recorded."""
        library = self.library(seconds).with_name(name)
        library.write_text(str(seconds))

        def prepare(place: int):
            return lambda: ((self.take(seconds),), False)

        return costs_of(3, prepare, store, key, library, SHAPES)[0]


@pytest.fixture
def slowed(tmp_path: Path) -> Slowed:
    return Slowed(tmp_path)


def test_a_base_that_was_timed_in_a_spell_is_lowered_and_records_are_corrected(slowed: Slowed) -> None:
    store = slowed.store()
    slowed.slow = {1e-3: 20.0, 1.2e-3: 20.0}
    assert slowed.measure(store, "a", 1e-3, "first.so") == pytest.approx(2e-2)
    assert slowed.measure(store, "a", 1.2e-3, "second.so") == pytest.approx(2.4e-2)
    assert slowed.corrections.due() == {}
    slowed.slow = {}
    assert slowed.measure(store, "a", 1.1e-3, "third.so") == pytest.approx(
        2.2e-2
    )  # one reading decides nothing
    store = slowed.store()  # the process is another one
    assert slowed.measure(store, "a", 1.3e-3, "fourth.so") == pytest.approx(1.3e-3)
    due = {Path(path).name: factor for path, factor in slowed.corrections.due().items()}
    assert due == {name: pytest.approx(1 / 20) for name in ("first.so", "second.so", "third.so")}
    assert slowed.corrections.due() == {}
    assert slowed.measure(store, "a", 1.4e-3, "fifth.so") == pytest.approx(1.4e-3)


def test_a_base_that_is_too_low_is_raised_if_others_take_what_they_should(slowed: Slowed) -> None:
    store = slowed.store()
    store.pulse().beat = lambda: 4e-4  # the probe alone is slow
    for number in range(3):
        assert slowed.measure(store, "a", 1e-3, f"a{number}.so") == pytest.approx(1e-3 / 4)
    store.pulse().beat = lambda: 1e-4
    for number in range(3):
        slowed.measure(store, "b", 2e-3, f"b{number}.so")
    for number in range(3, 6):
        assert slowed.measure(store, "a", 1e-3, f"a{number}.so") == pytest.approx(1e-3 / 4)
    assert slowed.corrections.due() == {}
    slowed.measure(store, "b", 2e-3, "b3.so")
    due = {Path(path).name: factor for path, factor in slowed.corrections.due().items()}
    assert due == {f"a{number}.so": pytest.approx(4.0) for number in range(6)}
    assert slowed.measure(store, "a", 1e-3, "a6.so") == pytest.approx(1e-3)


def test_nothing_is_raised_while_others_are_slow_too(slowed: Slowed) -> None:
    store = slowed.store()
    for key in "abab":
        slowed.measure(store, key, 1e-3 if key == "a" else 2e-3, f"{key}.so")
    slowed.slow = {1e-3: 2.0, 2e-3: 2.0}
    for key in "aaabbbaaabbb":
        assert slowed.measure(store, key, 1e-3 if key == "a" else 2e-3, f"{key}.so") == pytest.approx(
            1e-3 if key == "a" else 2e-3
        )
    assert slowed.corrections.due() == {}


def test_without_anyone_who_corrects_records_no_base_is_revised(tmp_path: Path) -> None:
    built = Built(tmp_path)
    store = built.shelf()
    store.put("a", built.library(1e-3), SHAPES)
    reference = store.get("a")
    assert reference is not None
    reference.base, reference.steady = 2e-2, [1e-3, 1e-3]
    assert store.settle("x") == store.settle("y") == 1.0 and reference.base == 2e-2
    assert not (store.folder / "journal.jsonl").exists()


def test_half_a_line_of_a_journal_is_left_for_later() -> None:
    corrections = Corrections()
    journal = Path(corrections.folder) / "journal.jsonl"
    journal.write_text('["program", "p", "l", 1.0]\n["revised", "l", 0.')
    assert corrections.due() == {}
    with journal.open("a") as file:
        file.write('5]\n["program", "q", "l", 0.5]\n')
    assert corrections.due() == {"p": 0.5}


def test_a_pace_goes_on_with_what_another_process_saw(tmp_path: Path) -> None:
    now = [0.0]
    pace = Pace(tmp_path / "pace.jsonl", lambda: now[0])
    for _ in range(KEPT + 9):
        pace.add("b", 2.0, 2.0, 1.0)
    for _ in range(3):
        pace.add("a", 3.0, 1.0, 1.0)
    with (tmp_path / "pace.jsonl").open("a") as file:
        file.write('["b", 0.0')
    again = Pace(tmp_path / "pace.jsonl", lambda: now[0])
    assert again.seen[-1] == pace.seen[-1] and len(again.seen) <= KEPT
    now[0] = 2 * MAX_GAP_SECONDS
    pace.add("b", 2.0, 2.0, 1.0)
    assert pace.too_low() is None  # too long ago
    now[0] = 1.0
    again.add("b", 2.0, 2.0, 1.0)
    assert again.too_low() == ("a", 1.0, 3.0)


def test_pauses_end_where_a_neighbour_stays() -> None:
    now = [0.0]
    patience = Patience(lambda seconds: now.__setitem__(0, now[0] + seconds), lambda: now[0])
    assert [patience.pause(number) for number in range(4)] == [*PAUSE_SECONDS, PAUSE_SECONDS[-1]]
    for _ in range(100):
        patience.sleep(patience.pause(2))
    assert now[0] == pytest.approx(PAUSED_SECONDS, rel=0.2)
    now[0] += 60.0
    assert patience.pause(2) == PAUSE_SECONDS[-1]


def test_a_ratio_is_what_turns_and_undisturbed_times_both_say() -> None:
    assert ratio([(1.0, 0.9)] * 5) == pytest.approx(0.9)
    spell = [(1.0, 0.9), (2.0, 1.8), (2.0, 1.8), (2.0, 1.8), (1.0, 0.9)]
    assert ratio(spell) == pytest.approx(0.9) and agree(spell)
    stalls = [(1.0, 1.1), (5.0, 1.1), (5.0, 1.1), (5.0, 1.1), (1.0, 1.1)]  # the median alone says 0.22
    assert ratio(stalls) == pytest.approx(1.1) and not agree(stalls)
    assert math.isnan(ratio([(0.0, 1.0)])) and agree([])


def test_more_turns_are_taken_while_two_estimates_differ() -> None:
    assert len(take_turns(lambda number: [(1.0, 0.9)], 4)) == 4
    noisy = take_turns(lambda number: [(1.0, 0.9), (5.0 if number % 4 else 1.0, 1.1)], 4)
    assert len(noisy) == 4 * MAX_TURNS_FACTOR
    assert (
        len(take_turns(lambda number: [(1.0, 0.9), (5.0 if number % 4 else 1.0, 1.1)], 4, compared=[0])) == 4
    )
    assert take_turns(lambda number: [], 2) == [[], []]


def test_bounds_are_far_on_both_sides_of_what_a_machine_does() -> None:
    machine = measured(lambda: 1e-3, lambda: 1e-2, 2)
    assert machine.flops == pytest.approx(2 * SIDE**3 * PRODUCTS / 1e-3)
    machine = Machine(flops=1e10, bandwidth=1e10, threads=2)
    least, most = machine.bounds(1e8, 1e6, 1e5)
    assert machine.bounds(0.0, 1e9, 1e8)[0] == pytest.approx(1e-2 / 16)  # a table is not read as a whole
    assert least == pytest.approx(1e-2 / 16) and most == pytest.approx(64 * (1e-2 + 1e-4 + 2e-5))
    # what was seen: 3.1 ms for a function of 0.14 ms for all calls
    assert machine.bounds(1e5, 1e5)[1] < 3.1e-3


def done(*seconds: float, weight: int = 1, **more: float) -> Progress:
    """A task with so many rounds of one trial."""
    task = Progress(**more)
    task.weight = weight
    for each in seconds:
        task.take(each)
        task.end_round()
    return task


def test_a_task_above_a_third_of_the_trials_has_a_third_of_the_time() -> None:
    heavy, light, other = done(4.0), done(*[1.0] * 4), done(1.0)
    assert next_task([heavy, light, other], 1, 12) is heavy
    tasks = [done(*[3.0] * 4), done(2.9), done(2.9), done(2.9)]
    assert time_share(tasks[0], tasks) < 1 / 3
    tasks[0].rounds = [9.0] * 2  # its gradient is the largest
    assert next_task(tasks, 1, 12) is not tasks[0]
    assert next_task(tasks, 1, math.inf) is not tasks[0]
    for task in tasks[1:]:
        task.finished = True
    assert next_task(tasks, 1, 12) is tasks[0]


def test_what_no_machine_takes_decides_no_more_than_what_it_may_take() -> None:
    doubtful, sound = done(20.0, ceiling=0.5), done(1.0)
    assert doubtful.plausible == 0.5 and next_task([doubtful, sound], 1) is sound
    assert done(1e-9, floor=0.1).plausible == 0.1
    assert done(20.0).gradient > done(20.0, ceiling=0.5).gradient


def test_corrected_times_change_each_round_s_best() -> None:
    task = done(20.0, 40.0, 1.5)
    assert task.best == 1.5 and task.rounds == [20.0, 20.0, 1.5]
    task.correct({0: 0.05, 1: 0.05})
    assert task.best == 1.0 and task.rounds == [1.0, 1.0, 1.0] and task.times == [1.0, 2.0, 1.5]
    failed = done(math.nan, 2.0)
    failed.correct({1: 0.5})
    assert failed.best == 1.0 and failed.rounds == [math.inf, 1.0]


def test_notes_have_their_lineage_and_scale(slowed: Slowed) -> None:
    store = slowed.store()
    slowed.measure(store, "a", 3e-3, "a.so")
    slowed.measure(store, "a", 1e-3, "b.so")  # takes the first one's place
    (place,) = Path(store.folder).glob("*/reference.json")
    note = json.loads(place.read_text())
    assert note["scale"] == 1.0 and note["lows"] == [] and note["base"] == pytest.approx(1e-3)
    programs = [json.loads(line) for line in (Path(store.folder) / "journal.jsonl").read_text().splitlines()]
    assert [kind for kind, *_ in programs] == ["program", "program"]
    assert {lineage for _, _, lineage, _ in programs} == {note["lineage"]}
