"""Several shapes of one model: what ``--shape ids=1,16/64/128`` asks for. Needs no TVM.

Extents with the same choices vary together, in one input and across inputs: ``ids=1,16/64`` and
``mask=1,16/64`` are two shapes of the model. Extents with other choices are combined:
``data=1/8,3,224/256,224`` are four.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from wmsched.base.errors import WmschedError
from wmsched.relax.importers.shapes import Shapes

__all__ = ["MAX_SHAPES", "Choices", "choices_of", "label_of", "option_of", "parse_extents", "variants"]

#: Shape of each input by name; of each extent the numbers to choose from.
Choices = Mapping[str, tuple[tuple[int, ...], ...]]
MAX_SHAPES = 16  # of one model: each is a library with the model's weights


def parse_extents(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the choices of a text such as "1,16/64/128".

    Raises
    ------
    ValueError
        It is no such text.
    """
    found = tuple(tuple(int(number) for number in part.split("/")) for part in text.split(","))
    for extent in found:
        if min(extent) < 1 or len(set(extent)) < len(extent):
            raise ValueError(f"{text!r} has an extent below 1, or one twice")
    return found


def choices_of(shapes: Mapping[str, Sequence[int | Sequence[int]]]) -> Choices:
    """Return the choices of shapes as Python writes them: ``{"ids": (1, (16, 64, 128))}``.

    Raises
    ------
    ValueError
        An extent is no number, or no sequence of different numbers, of 1 or more.
    """
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for name, shape in shapes.items():
        extents = [(one,) if isinstance(one, int) else tuple(one) for one in shape]
        for extent in extents:
            fine = all(isinstance(number, int) and number > 0 for number in extent)
            if not extent or not fine or len(set(extent)) < len(extent):
                raise ValueError(
                    f"shapes={{{name!r}: {shape!r}}}: an extent is a number, or a tuple of different ones to "
                    "choose from, such as (1, (16, 64, 128))"
                )
        found[name] = tuple(extents)
    return found


def option_of(name: str, extents: tuple[tuple[int, ...], ...]) -> str:
    """Return the text of ``--shape`` for an input."""
    return f"{name}={','.join('/'.join(map(str, extent)) for extent in extents)}"


def variants(choices: Choices) -> list[dict[str, tuple[int, ...]]]:
    """Return the shapes of all inputs for each choice, that with most elements first.

    Raises
    ------
    WmschedError
        They are more than `MAX_SHAPES`.
    """
    symbols = list(dict.fromkeys(extent for shape in choices.values() for extent in shape if len(extent) > 1))
    count = math.prod(map(len, symbols))
    if count > MAX_SHAPES:
        asked = " ".join(f"--shape {option_of(name, shape)}" for name, shape in choices.items())
        raise WmschedError(
            f"{asked}: these are {count} shapes of the model, and {MAX_SHAPES} are allowed: each is a "
            "library of its own. Ask for fewer: where padding changes nothing, a shape serves smaller inputs"
        )
    found = []
    for numbers in itertools.product(*symbols):
        chosen = dict(zip(symbols, numbers))
        found.append(
            {
                name: tuple(extent[0] if len(extent) == 1 else chosen[extent] for extent in shape)
                for name, shape in choices.items()
            }
        )
    return sorted(found, key=lambda shapes: -sum(map(math.prod, shapes.values())))


def label_of(inputs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return a name for a shape of a model, which a folder can have: "ids=1x16".

    Parameters
    ----------
    inputs : sequence of mapping
        ``name`` and ``shape`` of each.
    names : sequence of str
        Inputs whose shapes differ among the model's.
    """
    parts = [
        f"{one['name']}={'x'.join(map(str, one['shape'])) or 'scalar'}"
        for one in inputs
        if one["name"] in names
    ]
    kept = ",".join(parts)
    return "".join(sign if sign.isalnum() or sign in "=,._-" else "_" for sign in kept)[:120]


def of_variant(shapes: Shapes) -> str:
    """Return shapes as the command line has them, for messages."""
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
