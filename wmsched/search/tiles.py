"""Split lengths of a loop: reading, and mutation as in both schedulers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from random import Random


def known_lengths(lengths: Sequence[int | None]) -> list[int]:
    """Return the lengths of an AutoScheduler split with 1 for unknown ones."""
    return [length if length and length > 0 else 1 for length in lengths]


def move_factor(lengths: Sequence[int], innermost: int, rng: Random) -> list[int] | None:
    """Return lengths with a prime factor moved from one to another; None if the drawn one is 1.

    Parameters
    ----------
    lengths : sequence of int
        Outermost first.
    innermost : int
        Largest last length.
    rng : random.Random
    """
    order = list(range(len(lengths)))
    rng.shuffle(order)
    source = next((k for k in order if lengths[k] > 1), None)
    if source is None or len(order) < 2:
        return None
    target = rng.choice([k for k in order if k != source])
    last = len(lengths) - 1
    most = innermost // lengths[last] if target == last else lengths[source]
    factors = [factor for factor in divisors(lengths[source]) if factor <= most]
    if not factors:
        return None
    factor, found = rng.choice(factors), list(lengths)
    found[source] //= factor
    found[target] *= factor
    return found


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors above 1."""
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return tuple(sorted({*small, *(number // k for k in small)} - {1}))
