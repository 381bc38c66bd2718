"""phi of a batch is phi of its candidates one by one, to the last bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from step_lists import steps as any_steps

from wmsched.features.batch import batch as phi_batch
from wmsched.features.batch.batch import BatchFeatures
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.schedules.loop_nest import LoopNest
from wmsched.schedules.types import Access, Iter, Stage, Workload

SPATIAL = (Iter("i", 48, "S"), Iter("j", 64, "S"))
CHAIN = Workload(
    "chain",
    hardware=(2, 64, 64, 0, 0, 0, 0, 0),
    stages=(
        Stage("A", "placeholder", shape=(50, 96)),
        Stage("B", "placeholder", shape=(96, 64)),
        Stage("pad", "compute", (Iter("a", 52, "S"), Iter("b", 98, "S")), (), (), (52, 98)),
        Stage(
            "C",
            "compute",
            (*SPATIAL, Iter("k", 96, "R"), Iter("r", 3, "R")),
            (
                Access(2, (((0, 1), (3, 1)), ((2, 1),)), (52, 98)),
                Access(1, (((2, 1),), ((1, 1),)), (96, 64)),
                Access(1, (((2, 2), (3, -1)), ((1, 1),)), (96, 64)),
            ),
            (("Add", 1), ("Mul", 1), ("Reduce", 1)),
            (48, 64),
        ),
        Stage(
            "D", "compute", SPATIAL, (Access(3, (((0, 1),), ((1, 1),)), (48, 64)),), (("Max", 1),), (48, 64)
        ),
    ),
    flop_ct=2.0 * 48 * 64 * 96 * 3,
)


def numbers(rng: random.Random, count: int) -> list[int]:
    return [rng.choice((1, 1, 2, 3, 4, 7, 8, 16, 24)) for _ in range(count)]


def schedule(rng: random.Random) -> list:
    """A schedule whose every step names loops and stages that are there."""
    nest, steps = LoopNest(CHAIN.stages), []
    for _ in range(rng.randrange(14)):
        stage = rng.randrange(2, len(nest.stages))
        loops = len(nest.stages[stage].loops)
        if not loops:
            continue
        loop = rng.randrange(loops)
        splits = [n for n, step in enumerate(steps) if step[0] == "SP"] or [0]
        order = rng.sample(range(loops), loops)
        first = rng.randrange(loops)
        step = rng.choice(
            [
                ["SP", stage, loop, None, numbers(rng, rng.choice((1, 1, 3))), rng.randrange(2)],
                ["SP", stage, loop, 64, numbers(rng, rng.choice((1, 1, 3))), rng.randrange(2)],
                ["AN", stage, loop, rng.choice((1, 2, 2, 3, 3))],
                ["PR", stage, 0, f"auto_unroll_max_step${rng.choice((0, 16, 64, 512))}"],
                ["RE", stage, order],
                ["FU", stage, list(range(first, min(loops, first + rng.choice((1, 2, 3)))))],
                ["CI", rng.choice((2, 4))],
                ["CHW", stage, "local"],
                ["RF", stage, loop, 0],
                ["CA", stage, rng.randrange(2, len(nest.stages)), 0],
                ["FSP", stage, loop, rng.choice(splits), rng.choice((1, 2))],
                ["FFSP", stage, loop, [rng.choice(splits)], 0, 1],
            ]
        )
        if step[0] == "CA":
            step[3] = rng.randrange(max(1, len(nest.stages[step[2]].loops)))
        nest.apply(step)
        steps.append(step)
    return steps


def again(rng: random.Random, steps: list) -> list:
    """The same structure with other numbers."""
    new = []
    for step in steps:
        if step[0] == "SP":
            step = [*step[:4], numbers(rng, len(step[4])), step[5]]
        elif step[0] == "PR":
            step = [*step[:3], f"auto_unroll_max_step${rng.choice((0, 16, 512))}"]
        new.append(step)
    return new


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("threads", [1, 24])
def test_a_batch_of_many_structures(threads, seed) -> None:
    rng = random.Random(seed)
    batch = []
    for _ in range(30):
        steps = schedule(rng)
        batch += [steps, *(again(rng, steps) for _ in range(rng.randrange(6)))]
    rng.shuffle(batch)
    phi = BatchFeatures(CHAIN, threads=threads)
    plain = features(batch, CHAIN, threads=threads)[0]
    np.testing.assert_array_equal(phi(batch), plain)
    slowdowns = plain[:, FEATURE_NAMES.index(SLOWDOWN)]
    assert slowdowns.any() == (threads > 1)
    assert sum(found is not None for found in phi._templates.values()) > 5
    np.testing.assert_array_equal(phi(batch), plain)  # now that the structures are known


@settings(max_examples=60, deadline=None)
@given(any_steps)
def test_steps_of_no_program(steps) -> None:
    batch = [steps, again(random.Random(1), steps), again(random.Random(2), steps)]
    for workload in (CHAIN, Workload("unknown")):
        np.testing.assert_array_equal(BatchFeatures(workload)(batch), features(batch, workload)[0])


@pytest.mark.parametrize("bad", [None, 0, -4, 1 << 40], ids=str)
def test_lengths_that_are_none_go_the_plain_way(bad) -> None:
    batch = [[["SP", 3, 0, 48, [n], 1], ["SP", 3, 3, 96, [8], 1]] for n in (2, bad, 4, 8)]
    np.testing.assert_array_equal(BatchFeatures(CHAIN)(batch), features(batch, CHAIN)[0])


def test_what_cannot_be_followed_fails_as_it_does_alone() -> None:
    batch = [[["SP", 3, 0, 48, [2], 1]]] * 3 + [[["SP", 3, "no number", 48, [2], 1]]] * 3
    with pytest.raises(TypeError) as alone:
        features(batch[3:4], CHAIN)
    with pytest.raises(TypeError) as together:
        BatchFeatures(CHAIN)(batch)
    assert str(together.value) == str(alone.value)


def test_no_candidates_and_none_without_a_step() -> None:
    phi = BatchFeatures(CHAIN)
    assert phi([]).shape == (0, len(FEATURE_NAMES))
    np.testing.assert_array_equal(phi([[], [], []]), features([[], [], []], CHAIN)[0])


def test_structures_are_forgotten_when_there_are_many(monkeypatch) -> None:
    monkeypatch.setattr(phi_batch, "MAX_STRUCTURES", 3)
    phi = BatchFeatures(CHAIN)
    for count in range(1, 9):
        batch = [[["AN", 3, 1, 2]] * count] * 3
        np.testing.assert_array_equal(phi(batch), features(batch, CHAIN)[0])
        assert len(phi._templates) <= 3
