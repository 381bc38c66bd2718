"""An evolution goes further for a function that takes more of its model."""

import pytest

from benchmarks.construct.predicted import over
from wmsched.construct.effort import FLOP_PER_BYTE, shares, sized
from wmsched.search.evolution import Evolution

GIVEN = Evolution(population=1024, generations=4)


def test_shares_add_up_and_follow_calls_operations_and_bytes() -> None:
    found = shares([(1, FLOP_PER_BYTE * 300, 100), (2, 0, 100), (1, 0, 400)])
    assert found == pytest.approx([0.4, 0.2, 0.4])


def test_functions_of_nothing_count_fully() -> None:
    assert shares([(1, 0, 0), (1, 0, 0)]) == [1.0, 1.0] and shares([]) == []


def test_more_of_the_model_never_gets_less() -> None:
    sizes = [sized(GIVEN, share) for share in (0.0, 1e-3, 2e-3, 0.02, 0.3, 1.0)]
    populations = [size.population for size in sizes]
    generations = [size.generations for size in sizes]
    assert populations == sorted(populations) and generations == sorted(generations)
    assert (populations[-1], generations[-1]) == (2048, 5) and (populations[0], generations[0]) == (256, 2)
    assert {size.mutated for size in sizes} == {GIVEN.mutated}


def test_a_small_evolution_keeps_a_schedule_and_a_generation() -> None:
    least = sized(Evolution(population=1, generations=1), 0.0)
    assert (least.population, least.generations) == (1, 1)


def test_a_doubling_of_one_half_s_margin_takes_a_quarter_off() -> None:
    assert over([0.5, 0.5], [1.4, 0.0], [0.0, 0.0]) == pytest.approx(0.75)
    assert over([0.1, 0.3], [0.0, 0.0], [0.0, 0.0]) == pytest.approx(1.0)
