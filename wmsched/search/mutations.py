"""Mutations of AutoScheduler's schedules, made in the transform steps: no TVM, no lowering.

The mutations are AutoScheduler's (evolutionary_search.cc): split lengths, unrolling, parallel loops, and
compute locations with fusions. Compute locations are copied from programs that TVM sampled, because valid
fusions depend on them. Those programs run as many loops in parallel as possible; a mutation runs fewer.

Follow-split steps name a split by number, so they follow the new one. TVM validates only candidates chosen
for measurement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from wmsched.schedules.grammar import (
    AnnotationStep,
    ComputeAtStep,
    ComputeInlineStep,
    ComputeRootStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    PragmaStep,
    SplitStep,
    splits,
    typed,
)
from wmsched.schedules.loop_nest import PARALLEL
from wmsched.search.tiles import move_factor

Steps = list[list[Any]]

UNROLL = "auto_unroll_max_step$"
UNROLLS = (0, 16, 64, 512)  # AutoScheduler's, on a processor
MAX_INNERMOST = 64  # innermost length of a split: AutoScheduler's max_innermost_split_factor
# Probabilities of the mutations: tile, unrolling, compute location, parallel loops, graft.
MUTATION_SHARES = (0.85, 0.04, 0.03, 0.03, 0.05)
MUTATION_ATTEMPTS = 4  # before a call gives up
FIXED_FIELDS = {"SP": 4, "PR": 3, "CA": 2}  # leading fields of these steps that no mutation changes


class Mutations:
    """Mutations of one task's schedules.

    Parameters
    ----------
    rng : random.Random
    innermost : int
        Largest innermost length of a split.
    places : bool
        Whether compute locations may change.

    Examples
    --------
    >>> mutations = Mutations(random.Random(0))  # doctest: +SKIP
    >>> mutations.learn(sampled)  # doctest: +SKIP
    >>> mutations(sampled[0])  # steps, or None  # doctest: +SKIP
    """

    def __init__(self, rng: random.Random, *, innermost: int = MAX_INNERMOST, places: bool = True) -> None:
        self.rng = rng
        self.innermost = innermost
        self.places = places
        self._places: dict[bytes, dict[int, set[tuple[int, int]]]] = {}
        self._alike: dict[bytes, list[Steps]] = {}

    def learn(self, schedules: Iterable[Steps]) -> None:
        """Record compute locations and other steps of schedules that TVM made."""
        for steps in schedules:
            self._alike.setdefault(tiling(steps), []).append(steps)
            places = self._places.setdefault(skeleton(steps), {})
            for number, step in enumerate(steps):
                if step[0] == "CA":
                    _, _, target, loop = step
                    places.setdefault(number, set()).add((target, loop))

    def __call__(self, steps: Steps) -> Steps | None:
        """Return a mutated schedule, which shares unchanged steps; None if no mutation applies."""
        kinds = (self._tile, self._pragma, self._place, self._parallel, self._graft)
        for change in self.rng.choices(kinds, MUTATION_SHARES, k=MUTATION_ATTEMPTS):
            found = change(steps)
            if found is not None:
                return found
        return None

    def _tile(self, steps: Steps) -> Steps | None:
        """Move a prime factor between two lengths of a split."""
        places = [n for n, step in enumerate(steps) if step[0] == "SP" and divides(step)]
        if not places:
            return None
        place = self.rng.choice(places)
        code, stage, loop, extent, inner, inwards = steps[place]
        lengths = move_factor([extent // math.prod(inner), *inner], self.innermost, self.rng)
        if lengths is None:
            return None
        return _with(steps, place, [code, stage, loop, extent, lengths[1:], inwards])

    def _pragma(self, steps: Steps) -> Steps | None:
        """Change the unrolling."""
        pragmas = [(n, PragmaStep(*step)) for n, step in enumerate(steps) if step[0] == "PR"]
        places = [n for n, step in pragmas if step.pragma.startswith(UNROLL)]
        if not places:
            return None
        place = self.rng.choice(places)
        code, stage, loop, text = steps[place]
        value = f"{UNROLL}{self.rng.choice(UNROLLS)}"
        return None if value == text else _with(steps, place, [code, stage, loop, value])

    def _place(self, steps: Steps) -> Steps | None:
        """Copy a stage's compute location from another schedule of the same skeleton."""
        known = self._places.get(skeleton(steps), {}) if self.places else {}
        places = [number for number, seen in known.items() if len(seen) > 1]
        if not places:
            return None
        place = self.rng.choice(sorted(places))
        code, stage, *now = steps[place]
        there = self.rng.choice(sorted(known[place]))
        return None if there == tuple(now) else _with(steps, place, [code, stage, *there])

    def _parallel(self, steps: Steps) -> Steps | None:
        """Run fewer loops of a stage in parallel, but at least the first; often its extent is 1."""
        places = [n for n, step in enumerate(steps[:-1]) if fused_in_parallel(step, steps[n + 1])]
        if not places:
            return None
        place = self.rng.choice(places)
        code, stage, loops = steps[place]
        fewer = self.rng.randrange(1, len(loops))
        found = [*steps[:place], [code, stage, loops[:fewer]]]
        for step in steps[place + 1 :]:
            after = _further_in(step, stage, len(loops) - fewer)
            if after is None:
                return None
            found.append(after)
        return found

    def _graft(self, steps: Steps) -> Steps | None:
        """Combine another schedule's steps with this one's split lengths."""
        others = self._alike.get(tiling(steps))
        if not others:
            return None
        lengths = iter([split.lengths for split in splits(steps)])
        other = self.rng.choice(others)
        found = [_with_lengths(step, next(lengths)) if step[0] == "SP" else step for step in other]
        return None if found == steps else found


def divides(step: Sequence[Any]) -> bool:
    """Return whether a split's lengths are known and leave no remainder."""
    _, _, _, extent, inner, _ = step
    if not extent or not inner or any(not length or length < 1 for length in inner):
        return False
    return extent % math.prod(inner) == 0


def skeleton(steps: Steps) -> bytes:
    """Return a key shared by schedules that differ only in lengths, unrolling and compute locations."""
    return orjson.dumps([step[: FIXED_FIELDS.get(step[0])] for step in steps])


def tiling(steps: Steps) -> bytes:
    """Return a key shared by schedules whose split lengths are interchangeable."""
    found = []
    for step in steps:
        if step[0] == "SP":
            _, stage, loop, extent, lengths, _ = step
            found.append((stage, loop, extent, len(lengths)))
    return orjson.dumps(found)


def fused_in_parallel(step: Sequence[Any], after: Sequence[Any]) -> bool:
    """Return whether a step fuses several outermost loops of a stage that the next step parallelises."""
    if step[0] != "FU":
        return False
    _, stage, loops = step
    return len(loops) > 1 and loops[0] == 0 and list(after) == ["AN", stage, 0, PARALLEL]


def _further_in(step: list[Any], stage: int, loops: int) -> list[Any] | None:
    """Return a step after a fusion, if the fusion covers `loops` fewer loops; None if that is unknown.

    The stage's outermost loop keeps its number.
    """
    match typed(step):
        case ComputeAtStep(_, own, target, loop) if target == stage:
            return ["CA", own, stage, loop + loops if loop else 0]
        case ComputeAtStep() | ComputeRootStep() | ComputeInlineStep():
            return step
        case other if other.stage != stage:
            return step
        case (
            AnnotationStep()
            | PragmaStep()
            | SplitStep()
            | FollowSplitStep()
            | FollowFusedSplitStep() as inner
        ):
            return [*inner._replace(loop=inner.loop + loops if inner.loop else 0)]
        case FuseStep(_, _, fused) if fused[0]:
            return ["FU", stage, [loop + loops for loop in fused]]
    return None


def _with_lengths(split: list[Any], lengths: Sequence[Any]) -> list[Any]:
    code, stage, loop, extent, _, inwards = split
    return [code, stage, loop, extent, lengths, inwards]


def _with(steps: Steps, place: int, step: list[Any]) -> Steps:
    return [*steps[:place], step, *steps[place + 1 :]]
