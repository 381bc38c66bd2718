"""Layout rewrite functions as numpy's reshape and transpose.

MetaSchedule separates the layout rewrite of a weight from its use; a build computes it once. Such a TensorIR
function moves each element, as in ``packed[v2 // 16, v0, v1, v2 % 16] = weight[v0, v1, v2]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from wmsched.codegen.tir_reader import tensor_of, visit_nodes


@dataclass(frozen=True)
class Relayout:
    """Layout rewrite that splits each axis, permutes the parts, and reshapes to the result."""

    parts: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def __call__(self, data: np.ndarray) -> np.ndarray:
        """Return the tensor in its new layout."""
        return np.ascontiguousarray(data.reshape(self.parts).transpose(self.order)).reshape(self.shape)


def relayout(function: Any) -> Relayout | None:
    """Return the layout rewrite of a function of one input and one output; None if it is no pure one."""
    if len(function.params) != 2:
        return None
    source, result = function.params
    blocks: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, s_tir.SBlockRealize) and node.block.iter_vars:
            blocks.append(node)

    visit_nodes(function.body, visit)
    if len(blocks) != 1 or not _always(blocks[0].predicate):
        return None
    block = blocks[0].block
    store = block.body
    if block.init is not None or not isinstance(store, tirx.BufferStore) or not store.buffer.same_as(result):
        return None
    load = store.value
    if type(load).__name__ != "TensorLoad" or not tensor_of(load).same_as(source):
        return None
    variables = [item.var for item in block.iter_vars]
    if not all(isinstance(item.dom.extent, tirx.IntImm) for item in block.iter_vars):
        return None
    extents = [int(item.dom.extent) for item in block.iter_vars]
    if [int(extent) for extent in source.shape] != extents or any(int(v.dom.min) for v in block.iter_vars):
        return None
    if len(load.indices) != len(variables) or not all(map(tirx.Var.same_as, load.indices, variables)):
        return None
    return _of_indices(list(store.indices), variables, extents, [int(extent) for extent in result.shape])


def _of_indices(
    indices: list[Any], variables: list[Any], extents: list[int], shape: list[int]
) -> Relayout | None:
    """Return the rewrite whose indices ``v // stride % extent`` cover each variable exactly; else None."""
    parts: list[list[tuple[int, int, int]]] = [[] for _ in variables]  # stride, extent, axis of the result
    for axis, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        if extent == 1:
            continue  # an axis of one element has no part
        named = _variables(index)
        place = next((k for k, v in enumerate(variables) if len(named) == 1 and v.same_as(named[0])), None)
        if place is None:
            return None
        every = np.arange(extents[place])
        values = _values(index, {str(named[0].name): every})
        if values is None:
            return None
        stride = int(np.argmax(values != 0))
        if not stride or (values != every // stride % extent).any():
            return None
        parts[place].append((stride, extent, axis))
    flat: list[int] = []
    places: dict[int, int] = {}
    for found, extent in zip(parts, extents, strict=True):
        expected = extent
        for stride, size, axis in sorted(found, reverse=True):
            if stride * size != expected:
                return None
            expected = stride
            places[axis] = len(flat)
            flat.append(size)
        if expected != 1:
            return None
    return Relayout(tuple(flat), tuple(places[axis] for axis in sorted(places)), tuple(shape))


def _always(predicate: Any) -> bool:
    return isinstance(predicate, tirx.IntImm) and bool(predicate.value)


def _variables(expression: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.Var) and not any(node.same_as(one) for one in found):
            found.append(node)

    visit_nodes(expression, visit)
    return found


def _values(expression: Any, named: Mapping[str, Any]) -> Any:
    """Return an index for all values of its variables; None if a layout cannot have this form."""
    if isinstance(expression, tirx.IntImm):
        return int(expression.value)
    if isinstance(expression, tirx.Var):
        return named[str(expression.name)]
    operation = {
        tirx.Add: np.add,
        tirx.Sub: np.subtract,
        tirx.Mul: np.multiply,
        tirx.FloorDiv: np.floor_divide,
        tirx.FloorMod: np.mod,
    }.get(type(expression))
    if operation is None:
        return None
    a, b = _values(expression.a, named), _values(expression.b, named)
    return None if a is None or b is None else operation(a, b)
