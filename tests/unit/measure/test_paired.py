"""What a program counts for beside its task's reference, on made-up machines; no TVM."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from machines import SHAPES, Built

from wmsched.measure import paired, reference
from wmsched.measure.paired import costs_of
from wmsched.measure.reference import MAX_REFERENCE_SECONDS
from wmsched.measure.reference_store import ReferenceStore


def timed(
    shelf: ReferenceStore | None, built: Built, seconds: list[float], *, slow: bool = False
) -> tuple[float, ...]:
    """The costs of a program that takes these seconds, one after the other, on three sets of buffers."""
    left = list(seconds)

    def prepare(place: int):
        return lambda: ((left.pop(0) if len(left) > 1 else left[0],), slow)

    return costs_of(3, prepare, shelf, "task", built.library(seconds[0]), SHAPES)


def test_a_task_s_programs_are_timed_beside_its_first(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    # by itself, to see whether it can be a reference; then twice, of which the slower counts
    assert timed(shelf, built, [9.9e-3] * 3 + [1e-3, 1e-3, 1e-3, 2e-3]) == pytest.approx((2e-3,) * 3)
    # another that is no better is not
    assert timed(shelf, built, [2.2e-3, 2.2e-3, 2.2e-3, 9.9]) == pytest.approx((2.2e-3,) * 3)
    assert timed(shelf, built, [3e-3], slow=True) == pytest.approx((3e-3,))
    (place,) = [path for path in shelf.folder.iterdir() if path.is_dir()]
    assert json.loads((place / "reference.json").read_text())["best"] == pytest.approx(2e-3)
    assert timed(None, built, [4e-3]) == (4e-3,) * 3


def beside_the_best(tmp_path: Path, timings: list[float]) -> tuple[tuple[float, ...], list[int]]:
    """What a program counts for, and the sets asked for: its timings' seconds, of three sets each.

    The best of its task so far takes 2 ms.
    """
    built = Built(tmp_path)
    shelf = built.shelf()
    timed(shelf, built, [2e-3])
    asked: list[int] = []

    def prepare(place: int):
        asked.append(place)
        return lambda: ((timings[place // 3],), False)

    return costs_of(3, prepare, shelf, "task", built.library(1e-3), SHAPES), asked


def test_the_best_so_far_is_timed_again_on_other_buffers(tmp_path: Path) -> None:
    found, asked = beside_the_best(tmp_path, [1e-3, 3e-3])  # lucky on the first three
    assert found == pytest.approx((3e-3,) * 3) and asked == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("timings", "counts", "sets"),
    [
        ([2.2, 1.0], 2.2, 3),  # not near the best, 2
        ([2.08, 1.9], 2.08, 6),  # near it, and the slower of two is no nearer
        ([1.9, 2.03, 2.01, 1.9], 2.01, 9),  # of three the middle one
        ([1.9, 1.8, 1.7, 9.0], 1.9, 12),  # a disturbed timing does not lose the best
        ([0.9, 1.9, 1.8, 1.9], 1.9, 12),  # nor does a lucky one win
    ],
)
def test_what_is_nearly_the_best_is_timed_until_it_is_not(tmp_path: Path, timings, counts, sets) -> None:
    """In milliseconds."""
    found, asked = beside_the_best(tmp_path, [one * 1e-3 for one in timings])
    assert found == pytest.approx((counts * 1e-3,) * 3)
    assert asked == list(range(sets))


def test_the_best_of_many_in_a_spell_that_makes_some_seem_fast_is_not_the_luckiest(tmp_path: Path) -> None:
    """One timing in thirty a third too fast, of programs that differ by a tenth."""
    luck = random.Random(2)
    built = Built(tmp_path)
    shelf = built.shelf()
    timed(shelf, built, [1e-3])
    library, found = built.library(1e-3), []
    for _ in range(1000):
        seconds, factor = luck.uniform(1.0e-3, 1.1e-3), {}

        def prepare(place: int, seconds=seconds, factor=factor):
            lucky = factor.setdefault(place // 3, luck.choice([0.7, *[1.0] * 29]))
            return lambda: ((seconds * lucky,), False)

        found.append((fmean(costs_of(3, prepare, shelf, "task", library, SHAPES)), seconds))
    assert sum(cost < 0.9 * seconds for cost, seconds in found) <= 1
    assert min(found)[1] < 1.01e-3


def test_programs_that_are_too_slow_are_timed_by_themselves_and_not_loaded(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    for seconds in (2 * MAX_REFERENCE_SECONDS, 3 * MAX_REFERENCE_SECONDS):
        assert timed(shelf, built, [seconds]) == (seconds,) * 3
    assert not built.loaded
    timed(shelf, built, [MAX_REFERENCE_SECONDS / 2])
    assert len(built.loaded) == 1


def test_a_task_s_reference_gives_way_to_a_faster_program(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    for seconds in (3e-3, 2.5e-3, 1e-3):
        assert timed(shelf, built, [seconds]) == pytest.approx((seconds,) * 3)
    (place,) = [path for path in shelf.folder.iterdir() if path.is_dir()]
    assert json.loads((place / "reference.json").read_text())["base"] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("limit", "first", "better"), [(100.0, (9, 3), (12, 3)), (9.0, (6, 3), (6, 3)), (2.0, (1, 1), (1, 1))]
)
def test_no_timing_begins_that_the_runner_s_limit_would_cut_off(
    tmp_path: Path, monkeypatch, limit: float, first: tuple[int, int], better: tuple[int, int]
) -> None:
    """Each set takes a second: so many are timed of a task's first program and of a better one."""
    now = 0.0
    for module in (paired, reference):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    built = Built(tmp_path)
    shelf = built.shelf()

    def timings(cost: float) -> tuple[int, int]:
        nonlocal now
        begun = now

        def timing() -> tuple[tuple[float, ...], bool]:
            nonlocal now
            now += 1.0
            return (cost,), False

        costs = costs_of(3, lambda place: timing, shelf, "task", built.library(cost), SHAPES, limit)
        assert costs == pytest.approx((cost,) * len(costs))
        return round(now - begun), len(costs)

    assert timings(2e-3) == first
    assert timings(1e-3) == better


def test_a_program_whose_reference_fails_is_timed_by_itself(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    timed(shelf, built, [2e-3])
    known = shelf._reference
    assert known is not None

    def gone(count: int) -> tuple[float, ...]:
        raise RuntimeError("gone")

    known.clock = gone
    assert timed(shelf, built, [1e-3]) == (1e-3,) * 3
    assert not [path for path in shelf.folder.iterdir() if path.is_dir()]
    assert timed(shelf, built, [5e-3]) == pytest.approx((5e-3,) * 3)  # and is a reference anew
