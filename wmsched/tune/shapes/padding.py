"""Which extents of a model may be padded: tried on its libraries, with what is in the padding varied.

A larger shape's library serves smaller inputs where two things hold for each pair of neighbouring shapes:
what it computes of padded inputs does not depend on what the padding holds, and is what the smaller shape's
library computes. A length without a mask fails in the first, a mean over the length in the second.

An input whose name has "mask" in it is padded with zeros where the rest alone is not enough. Masks are then
tried with a first element that is not zero: a row that sees nothing has a softmax over its padding, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from wmsched.base.errors import WmschedError
from wmsched.tune.latency import difference

__all__ = ["Compiled", "padding_of", "unpadded"]

MASK = "mask"  # in the name of an input that says where others are to be ignored
DRAWS = 3  # of inputs, for each pair of shapes; masks of the last begin with zeros
LARGE = 8.0  # times a normal distribution, of what fills padding
SAME = 1e-6  # of two runs of one library, which may differ in the padding's sums of zeros


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One shape's library.

    Parameters
    ----------
    inputs : dict of str to torch.Tensor
        Values of its shape.
    call : callable (list of torch.Tensor) -> list of torch.Tensor
        Runs it.
    tolerance : float
        Of a difference between two libraries (`wmsched.tune.latency.tolerance`).
    """

    inputs: Mapping[str, Any]
    call: Callable[[list[Any]], list[Any]]
    tolerance: float

    def extent(self, place: Sequence[int]) -> int:
        """Return the extent of an axis of an input."""
        return int(list(self.inputs.values())[place[0]].shape[place[1]])


class _Changes(WmschedError):
    """Padding changes the result; the message says how."""


def padding_of(shapes: Sequence[Compiled]) -> list[dict[str, Any]]:
    """Return, for each set of extents that vary together, whether they may be padded, and how.

    Returns
    -------
    list of dict
        ``inputs``: [input, axis] of each; ``outputs``: [output, axis, numerator, denominator, offset] of the
        axes that follow, as an extent over this one; ``masks``: inputs that are padded with zeros and begin
        with something else; ``why``: why they may not be padded, "" where they may.
    """
    groups = _groups([[list(value.shape) for value in one.inputs.values()] for one in shapes])
    return [_group(shapes, extents, group) for extents, group in groups.items()]


def unpadded(inputs: Sequence[Sequence[Mapping[str, Any]]], why: str) -> list[dict[str, Any]]:
    """Return what `padding_of` does of shapes none of which may be padded.

    Parameters
    ----------
    inputs : sequence of sequence of mapping
        ``shape`` of each input, of each shape of the model.
    """
    groups = _groups([[spec["shape"] for spec in one] for one in inputs])
    return [{"inputs": group, "outputs": [], "masks": [], "why": why} for group in groups.values()]


def _groups(shapes: Sequence[Sequence[Sequence[int]]]) -> dict[tuple[int, ...], list[list[int]]]:
    """Return [input, axis] of what varies together, by its extents in all shapes."""
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for k, shape in enumerate(shapes[0]):
        for axis in range(len(shape)):
            extents = tuple(int(one[k][axis]) for one in shapes)
            if len(set(extents)) > 1:
                found.setdefault(extents, []).append([k, axis])
    return found


def _group(shapes: Sequence[Compiled], extents: Sequence[int], group: list[list[int]]) -> dict[str, Any]:
    found: dict[str, Any] = {"inputs": group, "outputs": [], "masks": [], "why": ""}
    pairs = _pairs(shapes, extents, group)
    if not pairs:
        return found | {"why": "no two shapes differ in it alone, so it was not tried"}
    names = list(shapes[0].inputs)
    masks = [k for k in dict.fromkeys(k for k, _ in group) if MASK in names[k].lower()]
    for tried in ([], masks) if masks else ([],):
        try:
            axes = [_tried(*pair, group, tried) for pair in pairs]
            if any(one != axes[0] for one in axes):
                raise _Changes("its outputs' extents do not follow it in one way")
            return found | {"outputs": axes[0], "masks": tried, "why": ""}
        except _Changes as error:
            found["why"] = str(error)
    return found


def _pairs(
    shapes: Sequence[Compiled], extents: Sequence[int], group: list[list[int]]
) -> list[tuple[Compiled, Compiled]]:
    """Return shapes that differ in a group alone, each with the next larger one."""
    rest: dict[Any, list[tuple[int, int]]] = {}
    for number, one in enumerate(shapes):
        other = [
            [0 if [k, axis] in group else extent for axis, extent in enumerate(value.shape)]
            for k, value in enumerate(one.inputs.values())
        ]
        rest.setdefault(str(other), []).append((extents[number], number))
    pairs = []
    for alike in rest.values():
        ordered = [number for _, number in sorted(alike)]
        pairs += [(shapes[a], shapes[b]) for a, b in pairwise(ordered)]
    return pairs


def _tried(small: Compiled, large: Compiled, group: list[list[int]], masks: Sequence[int]) -> list[list[int]]:
    """Return the outputs' axes that follow; raises `_Changes` where padding changes the result."""
    axes: list[list[int]] | None = None
    for draw in range(DRAWS - bool(masks)):
        given = _drawn(small, group, masks, draw)
        expected = small.call(given)
        padded = [large.call(_padded(given, large, masks, fill)) for fill in range(3)]
        if axes is None:
            axes = _following(expected, padded[0], small.extent(group[0]), large.extent(group[0]))
        cut = [[y[tuple(map(slice, x.shape))] for x, y in zip(expected, one)] for one in padded]
        if any(difference(other, cut[0]) > SAME for other in cut[1:]):
            raise _Changes("what the padding holds changes the result")
        if difference(cut[0], expected) > large.tolerance:
            raise _Changes("the result of padded inputs is another one")
    return axes or []


def _following(expected: Sequence[Any], found: Sequence[Any], before: int, after: int) -> list[list[int]]:
    """Return [output, axis, numerator, denominator, offset] of the axes that differ between two shapes."""
    axes = []
    for j, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one.dim() != other.dim():
            raise _Changes("its outputs have other ranks")
        for axis, (a, b) in enumerate(zip(one.shape, other.shape)):
            if a != b:
                slope = Fraction(b - a, after - before)
                offset = a - slope * before
                if offset.denominator != 1 or b < a:
                    raise _Changes("its outputs' extents do not follow it")
                axes.append([j, axis, slope.numerator, slope.denominator, int(offset)])
    return axes


def _drawn(one: Compiled, group: list[list[int]], masks: Sequence[int], draw: int) -> list[Any]:
    """Return inputs of a shape: its own values first, then random ones; masks begin with ones."""
    import torch

    made = torch.Generator().manual_seed(1 + draw)
    found = []
    for k, (name, value) in enumerate(one.inputs.items()):
        if k in masks or MASK in name.lower():
            fresh = torch.ones_like(value) if not draw else _random(value, made, 1.0)
            for axis in [axis for place, axis in group if place == k] or range(value.dim()):
                fresh.select(axis, 0).fill_(int(draw < DRAWS - 1))
        else:
            fresh = value.clone() if not draw else _random(value, made, 1.0)
        found.append(fresh)
    return found


def _padded(given: Sequence[Any], large: Compiled, masks: Sequence[int], fill: int) -> list[Any]:
    """Return inputs in a larger shape; the padding holds zeros, or one of two fills."""
    import torch

    made = torch.Generator().manual_seed(100 + fill)
    found = []
    for k, (value, like) in enumerate(zip(given, large.inputs.values())):
        if fill == 0 or k in masks:
            fresh = torch.zeros_like(like)
        elif fill == 1:
            fresh = torch.ones_like(like)
        else:
            fresh = _random(like, made, LARGE)
        fresh[tuple(map(slice, value.shape))] = value
        found.append(fresh)
    return found


def _random(like: Any, generator: Any, scale: float) -> Any:
    import torch

    if like.is_floating_point():
        return (scale * torch.randn(like.shape, generator=generator)).to(like.dtype)
    return torch.randint(0, 2, like.shape, generator=generator).to(like.dtype)
