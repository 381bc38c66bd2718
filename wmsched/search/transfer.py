"""Schedules of one program for another one that differs in extents alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wmsched.search.decision_space import DecisionSpace, Row

__all__ = ["adapted", "distance", "erased"]

_NUMBER, _EXTENT = re.compile(r"\d+"), re.compile(r"\b\d+\b")


def erased(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a program's text without its numbers, and those that are no part of a name."""
    return _NUMBER.sub("#", text), tuple(int(found) for found in _EXTENT.findall(text))


def distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many numbers of two programs with the same text differ."""
    return sum(a != b for a, b in zip(one, other)) + abs(len(one) - len(other))


def adapted(space: DecisionSpace, trace: Sequence[Any]) -> Row | None:
    """Return the row of a space that is nearest to a schedule of the same instructions with other extents.

    A tile keeps its inner factors as far as they divide, as TVM does it; the outermost takes the rest.

    Parameters
    ----------
    space : DecisionSpace
    trace : [instructions, decisions]
        JSON of the other program's trace, postprocessed or not.

    Returns
    -------
    Row or None
        None where the trace has other instructions, or exceeds the space's limits.
    """
    row = space.row_of(trace)
    if row is None:
        return None
    found = list(row)
    for slot in space.slots:
        if slot.innermost:
            left, parts = slot.extent, found[slot.start : slot.start + slot.parts]
            for k in range(slot.parts - 1, 0, -1):
                most = min(parts[k], slot.innermost) if k == slot.parts - 1 else parts[k]
                parts[k] = max(n for n in range(1, max(most, 1) + 1) if left % n == 0)
                left //= parts[k]
            parts[0] = left
            found[slot.start : slot.start + slot.parts] = parts
        elif found[slot.start] not in slot.choices:
            return None
    made = tuple(found)
    fits = all(made[slot.start + slot.parts - 1] <= slot.innermost for slot in space.tiles)
    return made if fits and space.fits(made) else None
