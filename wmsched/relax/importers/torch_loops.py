"""Replacement of a loop's slices, such as a recurrent layer's steps, by one split.

PyTorch slices each piece separately. TVM makes a function of each slice and its fused operators, because the
offset is a constant in it: an LSTM of 100 steps becomes 100 kernels. (`split_to_slices` is for few pieces.)
"""

from __future__ import annotations

import operator
from typing import Any

import torch

MIN_PIECES = 8  # fewer stay slices, which TVM fuses with their readers
SLICE = torch.ops.aten.slice.Tensor


def part_at_once(graph: Any) -> None:
    """Replace slices of a tensor into equal pieces by one split.

    Parameters
    ----------
    graph : torch.fx.Graph
        Graph of PyTorch's core operators with the example's values; changed in place. Fewer than `MIN_PIECES`
        slices, or slices that cover at most half of the tensor, stay.
    """
    cuts: dict[tuple[Any, int, int], list[tuple[Any, int]]] = {}
    for node in graph.nodes:
        if (found := _piece(node)) is not None:
            axis, start, size = found
            cuts.setdefault((node.args[0], axis, size), []).append((node, start // size))
    for (source, axis, size), pieces in cuts.items():
        value = source.meta["val"]
        if len({place for _, place in pieces}) < max(MIN_PIECES, value.shape[axis] // size // 2 + 1):
            continue
        with graph.inserting_before(pieces[0][0]):
            split = graph.call_function(torch.ops.aten.split.Tensor, (source, size, axis))
        split.meta["val"] = torch.split(value, size, axis)
        for node, place in pieces:
            with graph.inserting_after(split):
                piece = graph.call_function(operator.getitem, (split, place))
            piece.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(piece)
            graph.erase_node(node)


def _piece(node: Any) -> tuple[int, int, int] | None:
    """Return axis, start and size of a slice that is one of equal pieces; None for other nodes."""
    if node.op != "call_function" or node.target is not SLICE:
        return None
    source, axis, start, end, step = (*node.args, *(None,) * 5)[:5]
    value = source.meta.get("val")
    numbers = [0 if start is None else start, end, 1 if step is None else step, *getattr(value, "shape", ())]
    known = isinstance(value, torch.Tensor) and all(isinstance(number, int) for number in numbers)
    if node.kwargs or not known:
        return None
    axis = (axis or 0) % value.dim()
    extent = value.shape[axis]
    start, end = (number + extent if number < 0 else number for number in numbers[:2])
    size = min(end, extent) - start
    if numbers[2] != 1 or size < 1 or extent % size or start % size:
        return None
    return axis, start, size
