"""Comparison of two programs that are timed in turns on a machine that others disturb; needs no TVM."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

AGREEMENT = 0.02  # between the two estimates of a ratio, beyond which more turns are taken
MAX_TURNS_FACTOR = 3  # turns in all over those asked for

Pair = tuple[float, float]


def ratio(pairs: Sequence[Pair]) -> float:
    """Return the second program's time over the first's, the higher of two estimates.

    The median of the turns' ratios cancels spells that are longer than a turn. The ratio of each program's
    undisturbed turns cancels stalls, which hit one of the two. A program is taken for faster only if both
    say so. NaN without a turn in which the first one ran.
    """
    known = [(first, second) for first, second in pairs if first > 0]
    if not known:
        return math.nan
    return max(_estimates(known))


def agree(pairs: Sequence[Pair]) -> bool:
    """Whether the two estimates of a ratio differ by less than `AGREEMENT`."""
    known = [(first, second) for first, second in pairs if first > 0]
    if not known:
        return True
    in_turns, undisturbed = _estimates(known)
    return max(in_turns, undisturbed) <= (1 + AGREEMENT) * max(min(in_turns, undisturbed), 1e-12)


def take_turns(
    turn: Callable[[int], Sequence[Pair]], count: int, *, compared: Sequence[int] | None = None
) -> list[Sequence[Pair]]:
    """Take `count` turns, and up to `MAX_TURNS_FACTOR` times as many while a comparison is disturbed.

    Parameters
    ----------
    turn : callable (number) -> sequence of pairs
        Times several pairs of programs once.
    count : int
    compared : sequence of int, optional
        The pairs that must be settled; by default all.
    """
    taken = [turn(number) for number in range(count)]
    which = range(len(taken[0])) if compared is None and taken else compared or ()
    while len(taken) < MAX_TURNS_FACTOR * count and not all(
        agree([pairs[place] for pairs in taken]) for place in which
    ):
        taken.append(turn(len(taken)))
    return taken


def _estimates(pairs: Sequence[Pair]) -> Pair:
    low = (len(pairs) - 1) // 4  # lowest quarter: single readings that are too short do not decide
    firsts, seconds = (sorted(times)[low] for times in zip(*pairs))
    return median(second / first for first, second in pairs), seconds / firsts
