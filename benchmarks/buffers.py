"""The tensors that programs are timed on: in a round the same for all of them, in each round elsewhere.

How far the input of a program lies from its output changes its time, on a Zen 4 up to four times: ResNet-50's
max pooling took 60 us with one pair of buffers and 220 to 270 us with others, all at the same offset of a
page. A program that keeps one pair for good is timed on its luck, and two programs on pairs of their own are
compared by theirs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

PAGE = 4096
GAP_PAGES = (16, 1024)  # from 64 KiB, so that the gap is a mapping of its own as the tensors are, to 4 MiB

Shape = tuple[int, ...]


class Buffers:
    """Tensors by round, place, shape and type.

    Parameters
    ----------
    make : callable (shape, dtype) -> tensor
        Allocates and fills one.
    """

    def __init__(self, make: Callable[[Shape, str], Any]) -> None:
        self._make = make
        self._round: int | None = None
        self._tensors: dict[tuple[int, Shape, str], Any] = {}
        self._gaps: list[Any] = []

    def at(self, number: int, arguments: Sequence[tuple[Shape, str]]) -> list[Any]:
        """The tensors of round `number` for arguments of these shapes and types; those of other rounds go."""
        if number != self._round:
            self._round, self._tensors, self._gaps = number, {}, []
            self._random = random.Random(number)
        return [self._tensor(place, *argument) for place, argument in enumerate(arguments)]

    def _tensor(self, place: int, shape: Shape, dtype: str) -> Any:
        key = (place, shape, dtype)
        if key not in self._tensors:
            self._gaps.append(self._make((PAGE // 4 * self._random.randint(*GAP_PAGES),), "float32"))
            self._tensors[key] = self._make(shape, dtype)
        return self._tensors[key]
