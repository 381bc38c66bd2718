"""Normalisation: statistics as further results, and those of the batch; sums that PyTorch scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from wmsched.relax.importers.aten.elementwise import SHORT
from wmsched.relax.importers.aten.node import Node

op = relax.op
Convert = Callable[[Node], Any]


def reads_only_first(node: Node) -> bool:
    return all(len(user.args) > 1 and user.args[1] == 0 for user in node.fx.users)


def _statistics(node: Node, value: Any, axes: list[int], eps: float, kind: str) -> tuple[Any, Any, Any]:
    """Return mean, variance and the reciprocal of the deviation, with kept axes."""
    mean = node.emit(op.mean(value, axes, True))
    away = node.emit(op.subtract(value, mean))
    spread = node.emit(op.mean(node.emit(op.multiply(away, away)), axes, True))
    inverse = node.emit(op.rsqrt(node.emit(op.add(spread, node.const(eps, kind)))))
    return mean, spread, inverse


def _scaled(node: Node, value: Any, weight: str, bias: str, shape: list[int], kind: str) -> Any:
    for name, combine in ((weight, op.multiply), (bias, op.add)):
        if node.has(name):
            value = node.emit(combine(value, node.reshape(node.cast(node[name], kind), shape)))
    return value


def layer(node: Node) -> Any:
    """Native_layer_norm; TVM's where no statistics are read."""
    if reads_only_first(node) and node.dtype() not in SHORT:
        return NotImplemented
    shape, dtype = node.shape_of(node.first), node.dtype()
    axes = list(range(len(shape) - len(node["normalized_shape"]), len(shape)))
    kind = "float32" if dtype in SHORT else dtype
    value = node.cast(node[node.first], kind)
    mean, _, inverse = _statistics(node, value, axes, float(node["eps"]), kind)
    found = node.emit(op.multiply(node.emit(op.subtract(value, mean)), inverse))
    found = _scaled(node, found, "weight", "bias", [shape[k] for k in axes], kind)
    return (node.cast(found, dtype), node.cast(mean, node.dtype(1)), node.cast(inverse, node.dtype(2)))


def group(node: Node) -> Any:
    """Native_group_norm; TVM's where no statistics are read and both factors are given."""
    shape, dtype = node.shape_of(node.first), node.dtype()
    given = node.has("weight") and node.has("bias")
    if reads_only_first(node) and given and dtype not in SHORT and len(shape) > 2:
        return NotImplemented
    groups, kind = int(node["group"]), "float32" if dtype in SHORT else dtype
    count = shape[0] * groups
    value = node.reshape(node.cast(node[node.first], kind), (count, math.prod(shape) // count))
    mean, _, inverse = _statistics(node, value, [1], float(node["eps"]), kind)
    found = node.emit(op.multiply(node.emit(op.subtract(value, mean)), inverse))
    wide = [shape[1], *(1 for _ in shape[2:])]
    found = _scaled(node, node.reshape(found, shape), "weight", "bias", wide, kind)
    parts = [node.reshape(one, (shape[0], groups)) for one in (mean, inverse)]
    return (node.cast(found, dtype), *(node.cast(one, node.dtype(k + 1)) for k, one in enumerate(parts)))


def batch(node: Node) -> Any:
    """Batch normalisation by the batch's own statistics, with running ones where it returns them."""
    shape, dtype = node.shape_of(node.first), node.dtype()
    kind = "float32" if dtype in SHORT else dtype
    axes = [k for k in range(len(shape)) if k != 1]
    value = node.cast(node[node.first], kind)
    wide = [shape[1], *(1 for _ in shape[2:])]
    trains = bool(node.arguments.get("training", True))
    momentum = float(node["momentum"])
    if trains:
        mean, spread, inverse = _statistics(node, value, axes, float(node["eps"]), kind)
    else:
        mean, spread = (
            node.reshape(node.cast(node[name], kind), [1, *wide]) for name in ("running_mean", "running_var")
        )
        inverse = node.emit(op.rsqrt(node.emit(op.add(spread, node.const(float(node["eps"]), kind)))))
    found = node.emit(op.multiply(node.emit(op.subtract(value, mean)), inverse))
    found = node.cast(_scaled(node, found, "weight", "bias", wide, kind), dtype)
    saved = [node.empty((0,), kind)] * 2
    if trains:
        saved = [node.reshape(one, (shape[1],)) for one in (mean, inverse)]
    results = [found, *saved]
    if "functional" in node.name:
        count = math.prod(shape) // shape[1]
        unbiased = node.emit(op.multiply(spread, node.const(count / max(count - 1, 1), kind)))
        for name, new in (("running_mean", mean), ("running_var", unbiased)):
            old = node.cast(node[name], kind)
            new = node.reshape(new, (shape[1],))
            moved = node.emit(op.multiply(new, node.const(momentum, kind)))
            kept = node.emit(op.multiply(old, node.const(1 - momentum, kind)))
            results.append(node.emit(op.add(kept, moved)) if trains else old)
    several = [
        node.cast(one, node.dtype(k)) if node.result(k) is not None else one for k, one in enumerate(results)
    ]
    return tuple(several)


def inference(node: Node) -> Any:
    """Batch normalisation by running statistics; its further results are empty."""
    if reads_only_first(node):
        return NotImplemented
    node.arguments["training"] = False
    return batch(node)


def product(node: Node) -> Any:
    """Products of matrices in the type of the result, with PyTorch's factors of both terms."""
    names = list(node.arguments)
    dtype = node.dtype()
    adds = len(names) > 2
    factors = [node.arguments.get(name, 1) for name in ("beta", "alpha")]
    if dtype == "float32" and factors == [1, 1] and node.name != "aten.addbmm.default":
        return NotImplemented
    one, other = (node.cast(node[name], dtype) for name in (names[1:3] if adds else names[:2]))
    wide = {"int8": "int32", "uint8": "int32", "int16": "int32", "bool": "int32"}.get(dtype, dtype)
    found = node.emit(op.matmul(node.cast(one, wide), node.cast(other, wide), out_dtype=wide))
    if node.name == "aten.addbmm.default":
        found = node.emit(op.sum(found, [0]))
    if not adds:
        return node.cast(found, dtype)
    beta, alpha = factors
    if alpha != 1:
        found = node.emit(op.multiply(found, node.const(alpha, wide)))
    if beta == 0:  # what is scaled by 0 is not read: NaN in it do not count
        return node.cast(node.emit(op.broadcast_to(found, node.shape())), dtype)
    term = node.cast(node[names[0]], wide)
    term = term if beta == 1 else node.emit(op.multiply(term, node.const(beta, wide)))
    return node.cast(node.emit(op.add(term, found)), dtype)


def trilinear(node: Node) -> Any:
    """Sum of products of three tensors, each with new axes."""
    found = None
    for name, axes in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        value = node[name]
        for axis in sorted(node[axes]):
            value = node.emit(op.expand_dims(value, axis))
        found = value if found is None else node.emit(op.multiply(found, value))
    summed = [int(one) for one in node["sumdim"]]
    return node.emit(op.sum(found, summed)) if summed else found


CONVERTERS: dict[str, Convert] = {
    "aten.native_layer_norm.default": layer,
    "aten.native_group_norm.default": group,
    "aten._native_batch_norm_legit.no_stats": batch,
    "aten._native_batch_norm_legit.default": batch,
    "aten._native_batch_norm_legit_functional.default": batch,
    "aten._native_batch_norm_legit_no_training.default": inference,
    "aten.mm.default": product,
    "aten.bmm.default": product,
    "aten.addmm.default": product,
    "aten.baddbmm.default": product,
    "aten.addbmm.default": product,
    "aten._trilinear.default": trilinear,
}
