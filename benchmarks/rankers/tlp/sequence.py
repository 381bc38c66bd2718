"""Schedule primitives as fixed-size arrays: 25 primitives of 22 numbers and one name each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.schedules.loop_nest import ANNOTATIONS
from wmsched.schedules.steps import STEP_FIELDS

LENGTH = 25  # primitives kept of a sequence; TLP crops likewise, since few schedules are longer
WIDTH = 22  # numbers of a primitive: its type one-hot, then its parameters, as many as fit
CODES = {code: place for place, code in enumerate(STEP_FIELDS)}
PARAMETERS = WIDTH - len(CODES)

Steps = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Some schedules: `numbers` float32 [N, 25, 22], `names` int64 [N, 25]; an empty place is all zero."""

    numbers: NDArray[np.float32]
    names: NDArray[np.int64]


def parse(step: Sequence[Any]) -> tuple[str, list[float], str]:
    """(code, parameters, name) of a primitive.

    Lists are flattened. The name is what is no number: the kind of an annotation, a memory scope, a pragma
    (whose own number is a parameter). A split factor that is not decided counts as 0.
    """
    code, *fields = step
    name, numbers = "", []
    if code == "AN":
        name = ANNOTATIONS[fields.pop()]
    for field in fields:
        if isinstance(field, str):
            name, _, tail = field.partition("$")
            if tail.isdigit():
                numbers.append(float(tail))
        elif isinstance(field, list):
            numbers += [float(value or 0) for value in field]
        else:
            numbers.append(float(field or 0))
    return code, numbers, name


def vocabulary(candidates: Iterable[Steps]) -> list[str]:
    """The names in some schedules, sorted. Number 0 is "no name or an unknown one", so they count from 1."""
    return sorted({name for steps in candidates for step in steps if (name := parse(step)[2])})


def encode(candidates: Sequence[Steps], names: Sequence[str]) -> Encoded:
    """Arrays of some schedules with a vocabulary.

    Parameters are stored as sign(x) log2(1 + |x|): split lengths and extents span four decades.
    """
    places = {name: number for number, name in enumerate(names, start=1)}
    numbers = np.zeros((len(candidates), LENGTH, WIDTH), dtype=np.float32)
    named = np.zeros((len(candidates), LENGTH), dtype=np.int64)
    for row, steps in enumerate(candidates):
        for place, step in enumerate(steps[:LENGTH]):
            code, parameters, name = parse(step)
            numbers[row, place, CODES[code]] = 1.0
            kept = parameters[:PARAMETERS]
            numbers[row, place, len(CODES) : len(CODES) + len(kept)] = kept
            named[row, place] = places.get(name, 0)
    tail = numbers[:, :, len(CODES) :]
    numbers[:, :, len(CODES) :] = np.sign(tail) * np.log2(1.0 + np.abs(tail))
    return Encoded(numbers, named)
