"""Rows of a design space: within a block's limits, with every tile's product kept, and told apart."""

import random
from math import prod

import numpy as np
import pytest

from wmsched.base.errors import LogError
from wmsched.search.decision_space import MAX_NEST_DEPTH, MAX_VTHREADS, DecisionSpace, primes
from wmsched.search.tiles import divisors

TILE = [48, 4, 3, 64]  # 36864


def trace(*, threads=(32, 1024), tile=(48, 4, 3, 64), more=()):
    """A loop in four parts, for blocks, virtual threads, threads and each of these, and a category."""
    instructions = [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1"]],
        ["SamplePerfectTile", ["l1"], [4, 64], ["v2", "v3", "v4", "v5"]],
        ["Split", ["l1", "v2", "v3", "v4", "v5"], [1, 0], ["l6", "l7", "l8", "l9"]],
        ["Fuse", ["l6"], [1], ["l10"]],
        ["Bind", ["l10"], ["blockIdx.x"], []],
        ["Fuse", ["l7"], [1], ["l11"]],
        ["Bind", ["l11"], ["vthread.x"], []],
        ["Bind", ["l8"], ["threadIdx.x"], []],
        ["Annotate", ["b0", threads[0]], ["meta_schedule.thread_extent_low_inclusive"], []],
        ["Annotate", ["b0", threads[1]], ["meta_schedule.thread_extent_high_inclusive"], []],
        ["SampleCategorical", [], [[1, 2, 4], [0.5, 0.5, 0.0]], ["v12"]],
        ["Annotate", ["b0", "v12"], ["meta_schedule.unroll_explicit"], []],
        *more,
    ]
    return [instructions, [[2, list(tile)], [11, 0]]]


def checked(draws, row, high=1024):
    *tile, choice = row
    assert prod(tile) == prod(TILE) and tile[3] <= 64 and choice in (0, 1, 2)
    assert 32 <= tile[2] <= high and tile[1] <= MAX_VTHREADS
    assert draws.fits(row)


def test_what_is_drawn_fits_a_block():
    draws = DecisionSpace(trace())
    rows = draws.random(200, np.random.default_rng(1))
    assert len(set(rows)) == len(rows) == 200
    for row in rows:
        checked(draws, row)
    assert {row[4] for row in rows} == {0, 1}  # the third has no chance


def test_no_more_threads_than_the_target_has():
    draws = DecisionSpace(trace(), threads=128)
    for row in draws.random(50, np.random.default_rng(1)):
        checked(draws, row, 128)


def test_a_small_space_has_few_rows():
    instructions, _ = trace(threads=(1, 1024))
    draws = DecisionSpace([instructions, [[2, [2, 1, 1, 1]], [11, 0]]])
    assert len(draws.random(200, np.random.default_rng(1))) == 4 * 2


def test_a_space_in_which_nothing_fits_has_none():
    instructions, _ = trace()
    assert (
        DecisionSpace([instructions, [[2, [2, 1, 1, 1]], [11, 0]]]).random(9, np.random.default_rng(1)) == []
    )


def test_mutations_change_one_decision_and_fit():
    draws, rng = DecisionSpace(trace()), random.Random(3)
    row = draws.random(1, np.random.default_rng(1))[0]
    kinds = set()
    for _ in range(300):
        other = draws.mutate(row, rng)
        if other is None:
            continue
        assert other != row
        checked(draws, other)
        changed = other[:4] != row[:4], other[4] != row[4]
        assert sum(changed) == 1
        kinds.add(changed)
        row = other
    assert len(kinds) == 2


def test_a_space_of_one_schedule_has_no_mutations():
    only = [["SamplePerfectTile", ["l1"], [1, 64], ["v2"]]]
    draws = DecisionSpace([only, [[0, [7]]]])
    assert draws.random(3, np.random.default_rng(1)) == [(7,)]
    assert draws.mutate((7,), random.Random(1)) is None


def test_a_row_is_its_trace_s_and_a_trace_its_row_s():
    given = trace()
    draws = DecisionSpace(given)
    row = draws.random(1, np.random.default_rng(5))[0]
    assert draws.decisions(row) == [(2, list(row[:4])), (11, row[4])]
    drawn = [given[0], [list(pair) for pair in draws.decisions(row)]]
    assert draws.row_of(drawn) == row
    post = [["EnterPostproc", [], [], []], ["Unannotate", ["b0"], ["meta_schedule.unroll_explicit"], []]]
    assert draws.row_of([[*given[0], *post], drawn[1]]) == row


def test_traces_of_other_spaces_have_no_row():
    given = trace()
    draws = DecisionSpace(given)
    longer = [["Annotate", ["b0", 1], ["meta_schedule.vectorize"], []]]
    assert draws.row_of(trace(more=longer)) is None
    assert draws.row_of(trace(threads=(64, 1024))) is None
    assert draws.row_of([given[0][:5], given[1][:1]]) is None
    assert draws.row_of([given[0], given[1][:1]]) is None


def located(*, tile=(48, 4, 3, 64)):
    """A loop in four parts on a CPU, and two stages that can be computed elsewhere."""
    instructions = [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1"]],
        ["SamplePerfectTile", ["l1"], [4, 64], ["v2", "v3", "v4", "v5"]],
        ["SampleComputeLocation", ["b0"], [], ["l6"]],
        ["SampleComputeLocation", ["b0"], [], ["l7"]],
    ]
    return [instructions, [[2, list(tile)], [3, -1], [4, -2]]]


def test_where_a_stage_is_computed_is_drawn_and_told():
    draws = DecisionSpace(located())
    rows = draws.random(400, np.random.default_rng(1))
    assert len(rows) == 400 and {row[4] for row in rows} == set(range(-2, MAX_NEST_DEPTH))
    assert draws.row_of(located()) == (48, 4, 3, 64, -1, -2)
    assert draws.decisions((48, 4, 3, 64, -1, 3)) == [(2, [48, 4, 3, 64]), (3, -1), (4, 3)]
    assert draws.fits(rows[0])


def test_stages_are_computed_where_tvm_computed_them_in_the_end():
    draws = DecisionSpace(located())
    assert len(draws.places) == 2
    draws.settle(np.array([[48, 4, 3, 64, -1, -2], [48, 4, 3, 64, 3, -2], [48, 4, 3, 64, 3, -2]]))
    rows = draws.random(400, np.random.default_rng(1))
    assert {row[4] for row in rows} == {-1, 3} and {row[5] for row in rows} == {-2}
    assert [slot.instruction for slot in draws.places] == [3]  # the other has no choice left
    draws.settle(np.zeros((0, 6), dtype=np.int64))  # none was read: nothing is known
    assert {slot.choices for slot in draws.places} == {(-1, 3)}


def test_mutations_move_stages_now_and_then():
    draws, rng = DecisionSpace(located()), random.Random(3)
    draws.settle(np.array([[48, 4, 3, 64, place, place] for place in (-2, -1, 0, 1)]))
    row = (48, 4, 3, 64, -1, 0)
    changed = []
    for _ in range(600):
        other = draws.mutate(row, rng)
        if other is None:  # a tile whose last length is as long as it may be
            continue
        assert prod(other[:4]) == prod(TILE) and other[3] <= 64
        assert sum(a != b for a, b in zip(other[4:], row[4:])) + (other[:4] != row[:4]) == 1
        assert set(other[4:]) <= {-2, -1, 0, 1}
        changed.append(other[4:] != row[4:])
    assert 0.5 < np.mean(changed) < 0.75  # two of three decisions


def test_a_register_tile_is_what_lies_innermost():
    instructions, decisions = located()
    more = [
        ["SamplePerfectTile", ["l9"], [parts, 64], [f"v{parts}{k}" for k in range(parts)]] for parts in (4, 2)
    ]
    draws = DecisionSpace([[*instructions, *more], [*decisions, [5, [2, 1, 7, 1]], [6, [16, 4]]]])
    assert draws.register_tile((48, 4, 3, 64, -1, -2, 2, 1, 7, 1, 16, 4)) == ((192, 7), 4)
    assert draws.register_tile((48, 4, 3, 64, -1, 3, 2, 7, 1, 1, 64, 1)) == ((192, 1), 1)


def test_what_is_not_tiled_in_four_levels_has_no_register_tile():
    instructions = [["SamplePerfectTile", ["l1"], [2, 64], ["v0", "v1"]]]
    assert DecisionSpace([instructions, [[0, [16, 4]]]]).register_tile((16, 4)) is None
    assert (
        DecisionSpace([[["SampleComputeLocation", ["b0"], [], ["l6"]]], [[0, -1]]]).register_tile((-1,))
        is None
    )


def test_a_row_without_tiles_is_mutated():
    instructions = [["SampleComputeLocation", ["b0"], [], ["l6"]]]
    draws = DecisionSpace([instructions, [[0, -1]]])
    draws.settle(np.array([[-1], [0]]))
    assert sorted(draws.random(9, np.random.default_rng(1))) == [(-1,), (0,)]
    assert draws.mutate((0,), random.Random(1)) in ((-1,), None)


@pytest.mark.parametrize(
    "instruction, decision",
    [
        (["SamplePartitionedTile", ["l1"], [2, 1, 4], ["v13", "v14"]], [4, 4]),
        (["SamplePerfectTile", ["l1"], [2, 64], ["v13", "v14"]], None),
        (["SamplePerfectTile", ["l1"], [2, 64], ["v13", "v14"]], [4]),
        (["SamplePerfectTile", ["l1"], [2, 64], ["v13", "v14"]], [4, 0]),
        (["SampleCategorical", [], [[1, 2], [0.0, 0.0]], ["v13"]], 0),
    ],
)
def test_other_decisions_are_refused(instruction, decision):
    instructions, decisions = trace(more=[instruction])
    with pytest.raises(LogError, match=instruction[0]):
        DecisionSpace([instructions, [*decisions, [13, decision]]])


def test_factors():
    assert primes(1) == [] and primes(360) == [2, 2, 2, 3, 3, 5] and primes(97) == [97]
    assert divisors(12) == (2, 3, 4, 6, 12) and divisors(1) == ()
    for number in range(1, 200):
        assert divisors(number) == tuple(k for k in range(2, number + 1) if number % k == 0)


def test_whole_warps_count_as_their_threads():
    """Where a trace says that warps execute a block, a row's threads are warps: of 32 to 1024, 1 to 32."""
    warps = [["Annotate", ["b0", 1], ["warp_execution"], []]]
    draws = DecisionSpace(trace(more=warps), threads=512)
    rows = draws.random(50, np.random.default_rng(1))
    assert (
        rows and {row[2] for row in rows} <= {1, 2, 3, 4, 6, 8, 9, 12, 16} and max(row[2] for row in rows) > 8
    )


def test_rows_that_are_not_allowed_are_neither_drawn_nor_made_by_mutation():
    def even(space, row):
        assert space.width == len(row)
        return row[0] % 2 == 0

    draws, rng = DecisionSpace(trace(), allows=even), random.Random(3)
    rows = draws.random(20, np.random.default_rng(1))
    assert rows and all(row[0] % 2 == 0 for row in rows)
    made = [draws.mutate(rows[0], rng) for _ in range(100)]
    assert any(made) and all(row is None or row[0] % 2 == 0 for row in made)
