"""Gensor's equations and algorithms against numbers worked out on paper."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from construct_spaces import product

from wmsched.construct.gensor import (
    CACHE,
    INVERSE,
    PRINTED,
    TILE,
    VTHREAD,
    WORDS,
    GensorWalk,
    Move,
    cache_factor,
    caching_benefit,
    keep_probability,
    tiling_benefit,
    vthread_benefit,
)
from wmsched.construct.graph import unscheduled
from wmsched.construct.memory import Level, levels_of, tiled_block

SPACE, WORKLOAD = product(16, 16, 8)
BLOCK = tiled_block(SPACE, WORKLOAD)
LEVELS = levels_of(WORKLOAD)


def test_footprint_and_traffic_of_a_product() -> None:
    # a 4 x 2 tile with 8 to sum up: 32 of A, 16 of B, 8 of C; 4 x 8 tiles
    assert BLOCK.footprint((4, 2, 8)) == 4 * (32 + 16 + 8)
    assert BLOCK.traffic((4, 2, 8)) == 4 * (32 + 16 + 8) * 32
    # half the sum: twice as many tiles read, the output once for each spatial one
    assert BLOCK.traffic((4, 2, 4)) == 4 * ((16 + 8) * 64 + 8 * 32)
    assert BLOCK.footprint((16, 16, 8)) == BLOCK.traffic((16, 16, 8))


def test_tiles_of_a_row_by_level() -> None:
    row = (1, 2, 2, 4, 1, 1, 2, 8, 4, 2, 0)
    assert [BLOCK.tile(row, level) for level in LEVELS] == [(16, 16, 8), (8, 16, 2), (4, 8, 1)]


def test_levels_are_the_target_s() -> None:
    assert [level.name for level in LEVELS] == ["L2", "L1", "registers"]
    assert [round(level.capacity / 1024) for level in LEVELS] == [2048, 48, 2]  # Emerald Rapids
    gpu = levels_of(product(16, 16, 8, gpu=True)[1])
    assert round(gpu[0].capacity / 1024) == 48 and gpu[1].capacity == 1020


def test_both_readings_of_equation_1() -> None:
    assert tiling_benefit(100, 10, 50, 15, eq1=PRINTED) == pytest.approx(3.0)  # 100 * 15 / (50 * 10)
    assert tiling_benefit(100, 10, 50, 15, eq1=WORDS) == pytest.approx(4 / 3)  # 2 / 1.5


def test_equation_2() -> None:
    low, high = (Level("", 0, 0, None, None, 0, latency, band) for latency, band in ((10, 5), (1, 50)))
    assert caching_benefit(low, high, 100) == pytest.approx((10 + 20) / (1 + 2))


def test_equation_3() -> None:
    assert vthread_benefit(128, 1, 2) == 2.0  # ceil(128 / 32) / ceil(128 / 64)
    assert vthread_benefit(96, 1, 2) == 1.5  # 3 / 2
    assert vthread_benefit(32, 1, 4) == 1.0
    assert vthread_benefit(256, 2, 4) == 2.0


def test_the_factor_of_caching_grows_as_the_text_says() -> None:
    assert [cache_factor(t) for t in (0, 10)] == pytest.approx([0.5, 1.5])
    assert cache_factor(1000) == pytest.approx(3.0)
    assert cache_factor(2.0**60) == pytest.approx(3.0)


def test_hot_states_are_kept() -> None:
    assert keep_probability(math.exp(-10)) == pytest.approx(0.5)
    assert keep_probability(2.0**50) > 0.999 and keep_probability(2.0**-50) < 1e-3


def test_moves_of_the_unscheduled_row() -> None:
    row = unscheduled(
        SPACE,
        SPACE.row_of([SPACE.instructions, [[2, [1, 1, 1, 16]], [4, [16, 1, 1, 1]], [6, [8, 1]], [8, 1]]]),
    )
    assert row == (16, 1, 1, 1, 16, 1, 1, 1, 8, 1, 1)
    walk = GensorWalk()
    moves = walk.moves(SPACE, BLOCK, LEVELS, row, 0, 0.5)
    assert [(move.action, move.row[:8], move.level) for move in moves] == [
        (TILE, (8, 2, 1, 1, 16, 1, 1, 1), 0),
        (TILE, (16, 1, 1, 1, 8, 2, 1, 1), 0),
        (CACHE, (16, 1, 1, 1, 16, 1, 1, 1), 1),
    ]
    # 1 x 1 with 8: F = 4 * (8 + 8 + 1) = 68, Q = 256 * 68; 2 x 1: F = 4 * (16 + 8 + 2) = 104, Q = 128 * 104
    assert moves[0].benefit == pytest.approx(256 * 68 * 104 / (128 * 104 * 68))
    assert moves[2].benefit == pytest.approx(0.5 * (4 + 68 / 48) / (1.3 + 68 / 128))
    words = GensorWalk(eq1=WORDS).moves(SPACE, BLOCK, LEVELS, row, 0, 0.5)
    assert words[0].benefit == pytest.approx(256 * 68 * 68 / (128 * 104 * 104))


def test_an_inner_tile_takes_its_factor_from_outside_a_full_one() -> None:
    row = (8, 2, 1, 1, 16, 1, 1, 1, 8, 1, 0)
    moves = GensorWalk().moves(SPACE, BLOCK, LEVELS, row, 1)
    tiles = [move.row for move in moves if move.action == TILE]
    assert tiles == [
        (8, 1, 2, 1, 16, 1, 1, 1, 8, 1, 0),
        (8, 2, 1, 1, 8, 1, 2, 1, 8, 1, 0),
        (8, 2, 1, 1, 16, 1, 1, 1, 4, 2, 0),
    ]
    back = GensorWalk().moves(SPACE, BLOCK, LEVELS, tiles[0], 1)
    assert row in [move.row for move in back if move.action == INVERSE]


def test_a_tile_beyond_a_memory_is_no_action() -> None:
    space, workload = product(1024, 1024, 1024)
    block = tiled_block(space, workload)
    row = (64, 1, 1, 16, 64, 1, 1, 16, 1024, 1, 0)  # 16 x 16 and what is read for it: 288 floats of 512
    assert not block.overflows(row, LEVELS)
    wide = (64, 1, 1, 16, 32, 1, 1, 32, 1024, 1, 0)  # 16 x 32 are all registers of a core
    assert block.overflows(wide, LEVELS)
    assert wide not in [move.row for move in GensorWalk().moves(space, block, LEVELS, row, 2)]
    narrow = (64, 1, 1, 16, 128, 1, 1, 8, 1024, 1, 0)
    assert row in [move.row for move in GensorWalk().moves(space, block, LEVELS, narrow, 2)]


def test_virtual_threads_are_taken_from_threads_on_a_gpu() -> None:
    space, workload = product(128, 128, 64, gpu=True)
    row = (1, 1, 128, 1, 1, 16, 1, 8, 1, 1, 64, 1, 1, 0)
    moves = GensorWalk().moves(space, tiled_block(space, workload), levels_of(workload), row, 0)
    threads = [move for move in moves if move.action == VTHREAD]
    assert [move.row[:5] for move in threads] == [(1, 2, 64, 1, 1), (1, 1, 128, 1, 1)]
    assert [move.benefit for move in threads] == [2.0, 1.0]  # 128 wide, and 8


def test_algorithm_2_draws_in_proportion_to_the_benefits() -> None:
    moves = [Move(str(k), (), 0, benefit) for k, benefit in enumerate((1.0, 2.0, 5.0))]
    rng, walk = random.Random(0), GensorWalk()
    counts = Counter(walk.choose(moves, rng).action for _ in range(8000))
    for name, share in (("0", 1 / 8), ("1", 1 / 4), ("2", 5 / 8)):
        assert counts[name] / 8000 == pytest.approx(share, abs=0.02)
    assert walk.choose([], rng) is None and walk.choose([Move("", (), 0, 0.0)], rng) is None


def test_algorithm_2_as_printed_takes_the_first_that_the_draw_exceeds() -> None:
    moves = [Move(str(k), (), 0, benefit) for k, benefit in enumerate((1.0, 2.0, 5.0))]
    rng, walk = random.Random(0), GensorWalk(policy="printed")
    counts = Counter(walk.choose(moves, rng).action for _ in range(8000))
    assert counts["0"] / 8000 == pytest.approx(7 / 8, abs=0.02)
    assert counts["1"] / 8000 == pytest.approx(1 / 8 * 3 / 4, abs=0.02)
