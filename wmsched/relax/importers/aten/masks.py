"""Reading by a mask whose elements go back by another mask, as features take the places kept among words.

How many elements a mask finds hangs on data. Where a masked scatter alone reads them, all elements can come in
their stead, those of the mask in front: the scatter takes as many as it has places.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

aten = torch.ops.aten
CASTS = (aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout, aten.clone.default, aten.alias.default)


def in_front(graph: Any) -> None:
    """Replace readings by masks that masked scatters alone use by an order with the mask's elements in front.

    Parameters
    ----------
    graph : torch.fx.Graph
        Graph of PyTorch's core operators with the example's values; changed in place.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.index.Tensor and _is_by_mask(node):
            casts = _until_scattered(node)
            if casts is not None:
                _replace(graph, node, casts)


def _is_by_mask(node: Any) -> bool:
    """Return whether a reading has one mask, of the first axes of a tensor of fixed size."""
    source, indices = node.args
    if len(indices) != 1 or not isinstance(indices[0], torch.fx.Node):
        return False
    mask = indices[0].meta["val"]
    sizes = [*source.meta["val"].shape, *mask.shape]
    return mask.dtype is torch.bool and mask.dim() > 0 and all(isinstance(size, int) for size in sizes)


def _until_scattered(node: Any) -> list[Any] | None:
    """Return the casts of a node on its ways to masked scatters; None where anything else reads it."""
    casts: list[Any] = []
    if not node.users:
        return None
    for user in node.users:
        if user.target is aten.masked_scatter.default and node not in user.args[:2]:
            continue
        more = _until_scattered(user) if user.target in CASTS else None
        if more is None:
            return None
        casts += [user, *more]
    return casts


def _replace(graph: Any, node: Any, casts: list[Any]) -> None:
    source, (mask,) = node.args
    shape, rank = source.meta["val"].shape, mask.meta["val"].dim()
    rows = math.prod(shape[:rank])

    def made(target: Any, *arguments: Any, **options: Any) -> Any:
        new = graph.call_function(target, arguments, options)
        values = torch.fx.node.map_arg(arguments, lambda each: each.meta["val"])
        new.meta["val"] = target(*values, **options)
        return new

    with graph.inserting_before(node):
        flat = made(aten.view.default, mask, [rows])
        order = made(aten.sort.stable, flat, stable=True, dim=0, descending=True)
        places = made(operator.getitem, order, 1)
        data = made(aten.view.default, source, [rows, *shape[rank:]])
        found = made(aten.index_select.default, data, 0, places)
    node.replace_all_uses_with(found)
    graph.erase_node(node)
    for cast in casts:
        cast.meta["val"] = found.meta["val"].to(cast.meta["val"].dtype)
