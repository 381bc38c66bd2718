"""Other schedules of the same sketch, made in the transform steps themselves: no TVM, no lowering.

What changes is what AutoScheduler's own mutations change (evolutionary_search.cc): the lengths of a split,
how far loops are unrolled, how many run in parallel, and where a stage is computed, with what is fused. The
latter are taken from programs that TVM has drawn, for which loops can be fused depends on what is computed
within; these have as many in parallel as can be, which are made fewer here.
Steps that follow a split follow the new one, for they name it by its number. Whether TVM takes the
result is asked only of what is to be measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from wmsched.schedules.loop_nest import PARALLEL
from wmsched.search.tiles import move_factor

Steps = list[list[Any]]

UNROLL = "auto_unroll_max_step$"
UNROLLS = (0, 16, 64, 512)  # AutoScheduler's, on a processor
INNERMOST = 64  # the longest innermost part of a split, AutoScheduler's max_innermost_split_factor
SHARES = (0.85, 0.04, 0.03, 0.03, 0.05)  # of the changes: tiles, unrolling, places, parallel loops, grafts
TRIES = 4  # of a change that turns out to be none
BARE = {"SP": 4, "PR": 3, "CA": 2}  # fields of these steps that mutations leave alone


class Mutations:
    """Changes of the schedules of one task.

    Parameters
    ----------
    rng : random.Random
    innermost : int
        The longest innermost part of a split.
    places : bool
        Whether stages may be computed elsewhere.
    """

    def __init__(self, rng: random.Random, *, innermost: int = INNERMOST, places: bool = True) -> None:
        self.rng = rng
        self.innermost = innermost
        self.places = places
        self._places: dict[bytes, dict[int, set[tuple[int, int]]]] = {}
        self._alike: dict[bytes, list[Steps]] = {}

    def learn(self, schedules: Iterable[Steps]) -> None:
        """See where schedules that TVM made compute their stages, and what else they do with their tiles."""
        for steps in schedules:
            self._alike.setdefault(tiling(steps), []).append(steps)
            places = self._places.setdefault(skeleton(steps), {})
            for number, step in enumerate(steps):
                if step[0] == "CA":
                    places.setdefault(number, set()).add((step[2], step[3]))

    def __call__(self, steps: Steps) -> Steps | None:
        """Another schedule, which shares the steps that are the same; None where nothing could be changed."""
        kinds = (self._tile, self._pragma, self._place, self._parallel, self._graft)
        for change in self.rng.choices(kinds, SHARES, k=TRIES):
            found = change(steps)
            if found is not None:
                return found
        return None

    def _tile(self, steps: Steps) -> Steps | None:
        """Move a factor of one of a split's lengths to another."""
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
        """Unroll more or less."""
        places = [n for n, step in enumerate(steps) if step[0] == "PR" and step[3].startswith(UNROLL)]
        if not places:
            return None
        place = self.rng.choice(places)
        code, stage, loop, text = steps[place]
        value = f"{UNROLL}{self.rng.choice(UNROLLS)}"
        return None if value == text else _with(steps, place, [code, stage, loop, value])

    def _place(self, steps: Steps) -> Steps | None:
        """Compute a stage where another schedule of the same skeleton does."""
        known = self._places.get(skeleton(steps), {}) if self.places else {}
        places = [number for number, seen in known.items() if len(seen) > 1]
        if not places:
            return None
        place = self.rng.choice(sorted(places))
        code, stage, *now = steps[place]
        there = self.rng.choice(sorted(known[place]))
        return None if there == tuple(now) else _with(steps, place, [code, stage, *there])

    def _parallel(self, steps: Steps) -> Steps | None:
        """Run fewer loops of a stage in parallel, the first of them at least: often it has one step."""
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
        """All that another schedule does, with the lengths of this one."""
        others = self._alike.get(tiling(steps))
        if not others:
            return None
        lengths = iter([step[4] for step in steps if step[0] == "SP"])
        other = self.rng.choice(others)
        found = [[*step[:4], next(lengths), *step[5:]] if step[0] == "SP" else step for step in other]
        return None if found == steps else found


def divides(step: Sequence[Any]) -> bool:
    """Whether a split's parts are known and leave no remainder."""
    extent, inner = step[3], step[4]
    if not extent or not inner or any(not length or length < 1 for length in inner):
        return False
    return extent % math.prod(inner) == 0


def skeleton(steps: Steps) -> bytes:
    """What schedules have in common that differ in lengths, unrolling and where stages are computed alone."""
    return orjson.dumps([step[: BARE.get(step[0])] for step in steps])


def tiling(steps: Steps) -> bytes:
    """What schedules have in common whose splits can have each other's lengths."""
    return orjson.dumps([[*step[1:4], len(step[4])] for step in steps if step[0] == "SP"])


def fused_in_parallel(step: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether a step fuses several of a stage's outermost loops, which the one after runs in parallel."""
    if step[0] != "FU" or len(step[2]) < 2 or step[2][0] != 0:
        return False
    return list(after) == ["AN", step[1], 0, PARALLEL]


def _further_in(step: list[Any], stage: int, loops: int) -> list[Any] | None:
    """A step after the outermost loops of a stage were fused, where so many fewer are; None: it is not known.

    Of the stage's loops the outermost keeps its number.
    """
    code, own, *rest = step
    if code == "CA" and rest[0] == stage:
        return [code, own, stage, rest[1] + loops if rest[1] else 0]
    if own != stage or code in ("CA", "CR", "CI"):
        return step
    if code in ("AN", "PR", "SP", "FSP", "FFSP"):
        return [code, own, rest[0] + loops if rest[0] else 0, *rest[1:]]
    if code == "FU" and rest[0][0]:
        return [code, own, [loop + loops for loop in rest[0]]]
    return None


def _with(steps: Steps, place: int, step: list[Any]) -> Steps:
    return [*steps[:place], step, *steps[place + 1 :]]
