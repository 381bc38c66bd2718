"""Bases of references that later timings speak against, and corrections of what they scaled; no TVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from machines import SHAPES, Built

from wmsched.measure.corrections import Corrections
from wmsched.measure.evidence import KEPT, MAX_GAP_SECONDS, Pace
from wmsched.measure.paired import costs_of
from wmsched.measure.reference import PAUSE_SECONDS, PAUSED_SECONDS, Patience
from wmsched.measure.reference_store import ReferenceStore


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
