"""Buffers for timing: the same for all programs in a round, at other addresses in each round.

The distance between a program's input and output changes its time, on a Zen 4 up to four times. ResNet-50's
max pooling took 60 us with one pair of buffers and 220 to 270 us with others, all at the same page offset. A
fixed pair per program would compare luck.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

from wmsched.measure.buffer_offsets import GAP_PAGES, PAGE

Shape = tuple[int, ...]


class Buffers:
    """Tensors by round, place, shape and type.

    Parameters
    ----------
    empty : callable (shape, dtype) -> tensor
        Allocates one.
    fill : callable (tensor)
        Gives it values; the gaps between tensors get none.
    first : int
        Number of the first round; each has places of its own.
    """

    def __init__(
        self, empty: Callable[[Shape, str], Any], fill: Callable[[Any], object], *, first: int = 0
    ) -> None:
        self._empty, self._fill, self._first = empty, fill, first
        self._start(first)

    def timer(self, evaluate: Callable[..., Any], arguments: Sequence[Any]) -> Callable[[], float]:
        """A function that times a program once, in seconds, each call on the tensors of another round.

        Parameters
        ----------
        evaluate : callable (*tensors)
            TVM's time evaluator of the program.
        arguments : sequence
            What has the `shape` and the `dtype` of each of its arguments.
        """
        rounds = itertools.count(self._first)
        wanted = [(tuple(int(extent) for extent in one.shape), str(one.dtype)) for one in arguments]
        return lambda: float(evaluate(*self.at(next(rounds), wanted)).median)

    def at(self, number: int, arguments: Sequence[tuple[Shape, str]]) -> list[Any]:
        """The tensors of round `number` for arguments of these shapes and types; those of other rounds go."""
        if number != self._round:
            self._start(number)
        return [self._tensor(place, *argument) for place, argument in enumerate(arguments)]

    def _start(self, number: int) -> None:
        self._round, self._random = number, random.Random(number)
        self._tensors: dict[tuple[int, Shape, str], Any] = {}
        self._gaps: list[Any] = []

    def _tensor(self, place: int, shape: Shape, dtype: str) -> Any:
        key = (place, shape, dtype)
        if key not in self._tensors:
            self._gaps.append(self._empty((PAGE * self._random.randint(*GAP_PAGES),), "int8"))
            self._tensors[key] = self._empty(shape, dtype)
            self._fill(self._tensors[key])
        return self._tensors[key]
