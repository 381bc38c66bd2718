"""Additive integer program over measured costs: one option for each class of regions. Needs no TVM.

The seconds of a graph are taken as the sum of its regions', as NeoCPU has it (Liu et al., 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

__all__ = ["Costs", "best_choices"]

MIN_GAIN = 0.03  # of a region's time, below which an option counts as no faster than today's rule
APART = 8  # a further solution differs from each before in one of so many classes, at least

Choices = tuple[int, ...]


@dataclass(frozen=True)
class Costs:
    """Seconds of the options of one class of regions.

    Parameters
    ----------
    weight : int
        How many regions of the graph are of the class.
    seconds : mapping of tuple of int to float
        By an option for each site of the region; all zero is today's rule.
    """

    weight: int
    seconds: Mapping[Choices, float]


def best_choices(costs: Mapping[str, Costs], count: int) -> list[dict[str, Choices]]:
    """Return up to `count` choices for all classes, the least sum first; today's rules are none of them.

    Each is the exact minimum of ``sum_c w_c t_c[x_c]`` over what differs enough from those before.
    """
    columns = [(key, choices) for key, one in costs.items() for choices in one.seconds]
    if not columns:
        return []
    price = np.array(
        [
            costs[key].weight * costs[key].seconds[choices] * (1.0 + (MIN_GAIN if any(choices) else 0.0))
            for key, choices in columns
        ]
    )
    one_each = np.array([[float(key == own) for own, _ in columns] for key in costs])
    constraints = [LinearConstraint(one_each, 1.0, 1.0)]
    distance = max(1, len(costs) // APART)
    found: list[dict[str, Choices]] = []
    seen = [np.array([float(not any(choices)) for _, choices in columns])]  # today's rules
    for turn in range(count):
        rows = np.array(seen)
        least = np.array([1, *[distance] * (len(seen) - 1)])
        cuts = LinearConstraint(rows, -np.inf, len(costs) - least)
        solved = milp(
            price / price.max(),
            constraints=[*constraints, cuts],
            integrality=np.ones(len(columns)),
            bounds=Bounds(0.0, 1.0),
        )
        if solved.x is None:
            break
        taken = np.round(solved.x)
        if turn and price @ taken >= price @ seen[0]:
            break  # nothing further is expected to be faster than the rules
        seen.append(taken)
        found.append({key: choices for (key, choices), on in zip(columns, taken, strict=True) if on})
    return found
