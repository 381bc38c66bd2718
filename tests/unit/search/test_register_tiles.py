"""How a round of measurements is shared among register tiles."""

from __future__ import annotations

import math

import pytest

from wmsched.search.register_tiles import TileQuota, register_tile


def split(*lengths: int, extent: int = 64) -> list:
    return ["SP", 2, 0, extent, list(lengths), 1]


def schedule(rows: int, numbers: int, *, middle: int = 1, summed: int = 1, unrolled: int = 0) -> list:
    """Steps of a product: two tiled axes, a sum, and something that makes no other tile of it."""
    return [
        split(4, middle, rows),
        split(2, 1, numbers),
        split(summed),
        ["PR", 2, 0, f"auto_unroll_max_step${unrolled}"],
    ]


def taken(shares: TileQuota, ranked: list) -> list:
    found = []
    for steps in ranked:
        if shares.takes(steps):
            shares.take(steps)
            found.append(steps)
    return found


def test_a_tile_is_the_two_innermost_loops_of_each_axis_and_the_sum_within() -> None:
    assert register_tile(schedule(7, 16)) == ((7, 16), 1)
    assert register_tile(schedule(1, 16, middle=7)) == ((7, 16), 1)
    assert register_tile(schedule(7, 16, summed=4)) == ((7, 16), 4)
    assert register_tile(schedule(7, 16, unrolled=512)) == ((7, 16), 1)


def test_lengths_that_are_not_known_count_as_one() -> None:
    assert register_tile([["SP", 2, 0, 8, [2, None, 4], 1], split(8, 1, 2)]) == ((4, 2), 1)


@pytest.mark.parametrize("steps", [[], [split(4)], [split(4, 8), split(2)], [["AN", 0, 1, 2]]])
def test_what_has_no_tiles_is_never_crowded(steps) -> None:
    assert register_tile(steps) is None
    assert taken(TileQuota([], 8), [steps] * 30) == [steps] * 30


def test_a_first_round_has_a_fourth_of_each() -> None:
    ranked = [schedule(7, 16, unrolled=k) for k in range(20)] + [schedule(4, 16), schedule(6, 16)]
    assert taken(TileQuota([], 16), ranked) == [*ranked[:4], schedule(4, 16), schedule(6, 16)]


def test_later_rounds_have_more_of_what_was_fast() -> None:
    times = {4: 1.0, 5: 1.05, 6: 1.2, 7: 2.0, 8: math.nan}
    measured = [(schedule(rows, 16), seconds) for rows, seconds in times.items()]
    measured += [(schedule(4, 16, unrolled=1), 3.0)]  # not the best of its tile
    shares = TileQuota(measured, 16)
    assert [shares.most((rows, 16)) for rows in (*times, 9)] == [10, 4, 2, 1, 1, 2]


def test_a_sum_that_was_slow_leaves_its_tile_s_room_to_another() -> None:
    shares = TileQuota([(schedule(4, 16), 1.0), (schedule(4, 16, summed=8), 2.0)], 16)
    ranked = [schedule(4, 16, summed=8, unrolled=k) for k in range(9)]
    ranked += [schedule(4, 16, unrolled=k) for k in range(9)]
    assert taken(shares, ranked) == [ranked[0], *ranked[9:18]]


def test_sums_of_other_stages_do_not_count() -> None:
    other = ["SP", 5, 2, 49, [7], 1]
    assert register_tile([other, *schedule(7, 16, summed=4)]) == ((7, 16), 4)


def test_while_nothing_has_run_each_has_a_fourth_still() -> None:
    shares = TileQuota([(schedule(4, 16), math.nan)], 16)
    assert shares.most((4, 16)) == shares.most((5, 16)) == 4


def test_of_what_was_slow_four_times_no_more_is_measured() -> None:
    slow = [(schedule(4, 16, unrolled=k), 2.0) for k in range(3)]
    fast = [(schedule(6, 16), 1.0)]
    assert TileQuota(fast + slow, 16).most((4, 16)) == 1
    shares = TileQuota([*fast, *slow, (schedule(4, 16, unrolled=4), math.nan)], 16)
    assert shares.most((4, 16)) == 0
    assert taken(shares, [schedule(4, 16, unrolled=9), schedule(4, 16, summed=2)]) == []


def test_where_there_is_nothing_else_what_has_a_larger_share_goes_first() -> None:
    shares = TileQuota([(schedule(rows, 16), rows) for rows in (1, 2)], 16)
    first = [schedule(2, 16), schedule(9, 16), schedule(1, 16)]
    others = [schedule(rows, 16, unrolled=k + 1) for rows in (2, 9, 1) for k in range(12)]
    ranked = [*first, *others, [split(4)]]
    found = []
    for _, steps in shares.order(list(enumerate(ranked))):
        shares.take(steps)
        found.append(register_tile(steps))
    tiles = [None if tile is None else tile[0][0] for tile in found]
    assert tiles[:14] == [2, 9, 1, 9, *[1] * 9, None]  # 1, 2 and 10 of 16 have room
    assert tiles[14:] == [1] * 3 + [9] * 11 + [2] * 12


def test_schedules_of_another_kind_are_shared_by_their_own_tiles() -> None:
    shares = TileQuota([((4, 1), 1.0)], 16, tile_of=lambda row: ((row[0],), row[1]))
    assert [shares.most((4,)), shares.most((5,))] == [10, 2]
    assert [key for key, _ in shares.order([("slow", (5, 1)), ("fast", (4, 1))])] == ["slow", "fast"]


def test_a_small_round_has_one_of_each_at_least() -> None:
    assert TileQuota([], 1).most((4, 16)) == 1
    assert TileQuota([(schedule(4, 16), 1.0)], 2).most((9, 16)) == 1
