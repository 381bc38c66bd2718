"""How far an evolution goes for each function of a model: by its share of what the model is likely to take.

A function of a thousandth of a model's time needs no thousands of candidates, and one of a tenth is worth
more than the others. Shares come from operations and bytes alone, before any schedule is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from wmsched.search.evolution import Evolution

#: Operations that a core does in the time of a byte from memory.
FLOP_PER_BYTE = 8.0
#: Least share of a model, times the given population, and generations more than the given.
EFFORTS = ((0.03, 2.0, 1), (0.005, 1.0, 0), (0.0015, 0.5, -1), (0.0, 0.25, -2))


def shares(work: Sequence[tuple[float, float, float]]) -> list[float]:
    """Return each function's share of the predicted time, from (calls, operations, bytes) of all."""
    times = [calls * (flop / FLOP_PER_BYTE + size) for calls, flop, size in work]
    whole = math.fsum(times)
    return [time / whole if whole > 0 else 1.0 for time in times]


def sized(evolution: Evolution, share: float) -> Evolution:
    """Return the evolution for a function of that share of its model."""
    times, more = next((times, more) for least, times, more in EFFORTS if share >= least)
    return replace(
        evolution,
        population=max(1, round(times * evolution.population)),
        generations=max(1, evolution.generations + more),
    )
