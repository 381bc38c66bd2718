"""Mutations of transform steps: what changes, what stays, and what is left alone."""

import copy
import math
import random

import pytest

from wmsched.search.mutations import MAX_INNERMOST, UNROLL, UNROLLS, Mutations, divides, skeleton

TILED = [
    ["CI", 5],
    ["SP", 3, 0, 14, [7, 2, 1], 1],
    ["SP", 3, 4, 256, [8, 2, 16], 1],
    ["SP", 3, 8, 1024, [2], 1],
    ["RE", 3, [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]],
    ["FSP", 6, 0, 1, 2],
    ["CA", 3, 6, 7],
    ["FU", 6, [0, 1]],
    ["AN", 6, 0, 3],
    ["PR", 3, 0, f"{UNROLL}64"],
]


def parts(step):
    """A split's lengths, the outermost first."""
    return [step[3] // math.prod(step[4]), *step[4]]


def changes(steps, mutate, count=400):
    return [found for found in (mutate(steps) for _ in range(count)) if found is not None]


def test_one_step_changes_and_its_extent_stays():
    before = copy.deepcopy(TILED)
    mutate = Mutations(random.Random(1))
    found = changes(TILED, mutate)
    assert len(found) > 300 and before == TILED
    kinds = set()
    for steps in found:
        (place,) = [n for n, (a, b) in enumerate(zip(TILED, steps)) if a != b]
        kinds.add(steps[place][0])
        if steps[place][0] == "SP":
            assert math.prod(parts(steps[place])) == steps[place][3]
            assert steps[place][4][-1] <= MAX_INNERMOST
            assert sum(a != b for a, b in zip(parts(TILED[place]), parts(steps[place]))) == 2
        elif steps[place][0] == "FU":
            assert steps[place] == ["FU", 6, [0]] and steps[8] == TILED[8]
            continue
        else:
            assert steps[place][:3] == TILED[place][:3] and steps[place][3].startswith(UNROLL)
            assert int(steps[place][3].removeprefix(UNROLL)) in UNROLLS
        assert skeleton(steps) == skeleton(TILED)
    assert kinds == {"SP", "PR", "FU"}


def test_a_stage_is_computed_where_another_of_its_skeleton_is():
    other, stranger = copy.deepcopy(TILED), copy.deepcopy(TILED)
    other[6] = ["CA", 3, 6, 3]
    stranger[6] = ["CA", 3, 6, 5]
    stranger[7] = ["FU", 6, [0, 1, 2]]  # of another skeleton: five may be within what is fused here
    mutate = Mutations(random.Random(2))
    mutate.learn([TILED, other, stranger])
    found = changes(TILED, mutate, 2000)
    assert {tuple(steps[6]) for steps in found if steps[7] == TILED[7]} == {("CA", 3, 6, 7), ("CA", 3, 6, 3)}
    assert {tuple(steps[6]) for steps in found if steps[7] == stranger[7]} == {("CA", 3, 6, 5)}


def test_what_comes_after_fewer_parallel_loops_means_the_same_loops():
    wide = [
        ["FU", 3, [0, 1, 2]],
        ["AN", 3, 0, 3],
        ["AN", 2, 3, 2],  # another stage's
        ["PR", 3, 0, f"{UNROLL}16"],
        ["SP", 3, 1, 8, [1], 1],
        ["FU", 3, [2, 3]],
        ["AN", 3, 2, 2],
        ["CA", 1, 3, 2],
        ["CA", 0, 3, 0],
    ]
    found = [steps for steps in changes(wide, Mutations(random.Random(9)), 4000) if steps[0] != wide[0]]
    narrow = [steps for steps in found if steps[3] == wide[3] and steps[4][4] == [1]]
    assert {tuple(steps[0][2]) for steps in narrow} == {(0,), (0, 1)}
    for steps in narrow:
        more = 3 - len(steps[0][2])
        assert steps[1:4] == wide[1:4]
        assert steps[4:] == [
            ["SP", 3, 1 + more, 8, [1], 1],
            ["FU", 3, [2 + more, 3 + more]],
            ["AN", 3, 2 + more, 2],
            ["CA", 1, 3, 2 + more],
            ["CA", 0, 3, 0],
        ]


def test_parallel_loops_stay_where_a_later_step_is_not_known():
    wide = [["FU", 3, [0, 1]], ["AN", 3, 0, 3], ["RE", 3, [1, 0]]]
    assert Mutations(random.Random(10))(wide) is None


def test_another_structure_takes_the_lengths_that_there_are():
    other = copy.deepcopy(TILED)
    other[1][4], other[3][4], other[6], other[7] = [1, 1, 1], [8], ["CR", 3], ["FU", 6, [0, 1, 2]]
    stranger = [*copy.deepcopy(TILED), ["SP", 9, 0, 4, [2], 1]]  # its splits are others
    mutate = Mutations(random.Random(8))
    mutate.learn([other, stranger])
    found = [steps for steps in changes(TILED, mutate, 2000) if steps[6][0] == "CR"]
    assert found and all(len(steps) == len(TILED) for steps in found)
    assert all(steps[7] == other[7] for steps in found)
    assert all(steps[k] == TILED[k] for steps in found for k in (1, 2, 3))


def test_every_tile_can_be_reached():
    start = [["SP", 0, 0, 8, [1, 1], 1]]
    mutate, seen = Mutations(random.Random(3)), {(1, 1)}
    now = start
    for _ in range(2000):
        now = mutate(now) or now
        seen.add(tuple(now[0][4]))
    assert len(seen) == 10  # as many as there are ordered factors of 8 in three parts


def test_the_innermost_part_grows_no_longer_than_the_vector_may():
    mutate = Mutations(random.Random(4), innermost=16)
    now = [["SP", 0, 0, 4096, [1, 1], 1]]
    for _ in range(500):
        now = mutate(now) or now
        assert now[0][4][-1] <= 16


@pytest.mark.parametrize(
    "step",
    [
        ["SP", 0, 0, None, [2], 1],
        ["SP", 0, 0, 8, [None], 1],
        ["SP", 0, 0, 8, [3], 1],
        ["SP", 0, 0, 8, [], 1],
        ["SP", 0, 0, 8, [0], 1],
        ["SP", 0, 0, 1, [1, 1], 1],
    ],
)
def test_a_split_that_is_unknown_uneven_or_of_one_stays(step):
    assert Mutations(random.Random(5))([step]) is None
    assert not divides(step) or step[3] == 1


def test_a_schedule_without_anything_to_change_gives_none():
    mutate = Mutations(random.Random(6))
    assert mutate([["CI", 1], ["AN", 0, 0, 3]]) is None and mutate([]) is None


def test_the_same_seed_gives_the_same():
    first, second = (changes(TILED, Mutations(random.Random(7)), 50) for _ in range(2))
    assert first == second
