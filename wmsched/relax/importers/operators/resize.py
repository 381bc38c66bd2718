"""Resize and Upsample: each axis has its own neighbours and weights, known when the model is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te

from wmsched.relax.importers.operators.node import Node, is_float

MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class Axis:
    """How the elements of a result along one axis come from those of the input.

    Attributes
    ----------
    places : array [result, taps] of int64
    weights : array [result, taps] of float64
    outside : array [result] of bool
        Whether the extrapolation value stands there.
    """

    places: np.ndarray
    weights: np.ndarray
    outside: np.ndarray


@dataclass(frozen=True)
class Form:
    """Attributes of a Resize."""

    mode: str
    transform: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool


def resize(node: Node) -> Any:
    shape, rank = node.shape(), len(node.shape())
    old = node.opset < 11
    form = Form(
        node.text("mode", "nearest"),
        "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel"),
        "floor" if old else node.text("nearest_mode", "round_prefer_floor"),
        node.number("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside")),
        bool(node.integer("antialias")),
    )
    if form.mode not in MODES:
        node.refuse(f"the mode {form.mode!r} is not supported; {', '.join(MODES)} are")
    axes = [node.axis(one, rank) for one in node.numbers("axes") or range(rank)]
    roi_at, scales_at = (None, 1) if old else (1, 2)
    scales, sizes = _extents(node, shape, axes, scales_at)
    roi = [0.0] * rank, [1.0] * rank
    if form.transform == "tf_crop_and_resize" and roi_at is not None:
        given = node.constant(roi_at, "its region of interest").reshape(2, -1)
        for k, axis in enumerate(axes):
            roi[0][axis], roi[1][axis] = float(given[0][k]), float(given[1][k])
    moved = [
        k for k in range(rank) if sizes[k] != shape[k] or scales[k] != 1 or (roi[0][k], roi[1][k]) != (0, 1)
    ]
    if not moved:
        return node.inputs[0]
    if _is_tunable(node, form, shape, sizes, scales, moved):
        return _tunable(node, form, sizes)
    found = {k: _axis(form, shape[k], sizes[k], scales[k], (roi[0][k], roi[1][k])) for k in moved}
    return _written(node, form, sizes, found)


def _extents(
    node: Node, shape: tuple[int, ...], axes: list[int], place: int
) -> tuple[list[float], list[int]]:
    """Return the scale and the size of each axis of the result."""
    rank = len(shape)
    scales, sizes = [1.0] * rank, list(shape)
    listed = node.attributes.get("scales")
    if (node.has(place) and 0 not in node.shape(place)) or listed is not None:
        given = node.constant(place, "its scales") if listed is None else np.asarray(listed)
        for axis, scale in zip(axes, given.reshape(-1)):
            scales[axis] = float(scale)
            sizes[axis] = math.floor(shape[axis] * float(np.float32(scale)))
        return scales, sizes
    if not node.has(place + 1):
        node.refuse("neither scales nor sizes are given")
    wanted = [int(one) for one in node.constant(place + 1, "its sizes").reshape(-1)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    ratios = [size / shape[axis] for axis, size in zip(axes, wanted)]
    if policy != "stretch":
        kept = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [math.floor(shape[axis] * kept + 0.5) for axis in axes]
        ratios = [kept] * len(axes)
    for axis, size, ratio in zip(axes, wanted, ratios):
        sizes[axis], scales[axis] = size, ratio
    return scales, sizes


def _is_tunable(
    node: Node,
    form: Form,
    shape: tuple[int, ...],
    sizes: list[int],
    scales: list[float],
    moved: list[int],
) -> bool:
    """Whether Relax's operator, which schedules and layouts know, computes the same."""
    if len(shape) != 4 or min(moved) < 2 or form.antialias or form.exclude or not is_float(node.dtype()):
        return False
    if any(sizes[k] != shape[k] * scales[k] for k in moved):
        return False
    if form.mode == "nearest":
        whole = all(sizes[k] % shape[k] == 0 for k in moved)
        return whole and form.transform == "asymmetric" and form.nearest == "floor"
    return (
        form.mode == "linear"
        and form.transform in ("half_pixel", "align_corners", "asymmetric")
        and all(sizes[k] > 1 for k in (2, 3))
    )


def _tunable(node: Node, form: Form, sizes: list[int]) -> Any:
    return node.emit(
        relax.op.image.resize2d(
            node.inputs[0],
            relax.ShapeExpr(sizes[2:]),
            layout="NCHW",
            method="nearest_neighbor" if form.mode == "nearest" else "linear",
            coordinate_transformation_mode=form.transform,
            rounding_method="floor" if form.mode == "nearest" else "",
        )
    )


def _axis(form: Form, size: int, found: int, scale: float, roi: tuple[float, float]) -> Axis:
    """Return the neighbours and weights of one axis."""
    at, outside = _coordinates(form.transform, size, found, scale, roi)
    if form.mode == "nearest":
        places = _rounded(form.nearest, at)[:, None]
        return Axis(np.clip(places, 0, size - 1).astype(np.int64), np.ones(places.shape), outside)
    places, weights = _neighbours(form, at, min(scale, 1.0) if form.antialias else 1.0)
    if form.exclude:
        weights = np.where((places >= 0) & (places < size), weights, 0.0)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return Axis(np.clip(places, 0, size - 1).astype(np.int64), weights, outside)


def _coordinates(
    transform: str, size: int, found: int, scale: float, roi: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(found, dtype=np.float64)
    outside = np.zeros(found, bool)
    length = size * scale  # of the result, before it is rounded down
    if transform == "half_pixel":
        at = (x + 0.5) / scale - 0.5
    elif transform == "half_pixel_symmetric":
        adjustment = found / length
        center = size / 2
        at = center * (1 - adjustment) + (x + 0.5) / scale - 0.5
    elif transform == "pytorch_half_pixel":
        at = (x + 0.5) / scale - 0.5 if length > 1 else np.zeros(found)
    elif transform == "align_corners":
        at = x * (size - 1) / (length - 1) if length != 1 else np.zeros(found)
    elif transform == "asymmetric":
        at = x / scale
    elif transform == "tf_half_pixel_for_nn":
        at = (x + 0.5) / scale
    elif transform == "tf_crop_and_resize":
        start, end = roi
        if length > 1:
            at = start * (size - 1) + x * (end - start) * (size - 1) / (length - 1)
        else:
            at = np.full(found, 0.5 * (start + end) * (size - 1))
        outside = (at < 0) | (at > size - 1)
    else:
        raise ValueError(f"the coordinates {transform!r} are not known")
    return at, outside


def _rounded(mode: str, at: np.ndarray) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(at + 0.5)
    return np.floor(at) if mode == "floor" else np.ceil(at)


def _neighbours(form: Form, at: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return places and weights of a linear or cubic filter, wider by 1 / scale."""
    reach = 1 if form.mode == "linear" else 2
    width = math.ceil(reach / scale)
    base = np.floor(at)[:, None]
    taps = np.arange(1 - width, width + 1)[None, :]
    places = base + taps
    away = np.abs((at[:, None] - places) * scale)
    if form.mode == "linear":
        weights = np.maximum(0.0, 1 - away)
    else:
        a = form.cubic
        near = ((a + 2) * away - (a + 3)) * away * away + 1
        far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
        weights = np.where(away <= 1, near, np.where(away < 2, far, 0.0))
    if form.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return places, weights


def _written(node: Node, form: Form, sizes: list[int], axes: dict[int, Axis]) -> Any:
    """Return the axes' reductions one after the other, as a tensor expression each."""
    dtype = node.dtype()
    if form.mode == "nearest":
        value = node.inputs[0]
        for k, axis in axes.items():
            places = relax.const(axis.places[:, 0], "int64")
            value = node.emit(relax.op.take(value, places, axis=k))
        kind = dtype
    else:
        kind = dtype if dtype in ("float32", "float64") else "float32"
        value = node.cast(node.inputs[0], kind)
        for k, axis in axes.items():
            value = _along(node, value, k, axis, kind)
    flags = [(k, axis.outside) for k, axis in axes.items() if axis.outside.any()]
    if flags:
        mask = np.zeros(sizes, bool)
        for k, outside in flags:
            mask |= outside.reshape([-1 if j == k else 1 for j in range(len(sizes))])
        beyond = node.const(node.number("extrapolation_value", 0.0), kind)
        value = node.emit(relax.op.where(relax.const(mask), beyond, value))
    if kind != dtype and not is_float(dtype):
        value = _whole(node, value, dtype)
    return node.cast(value, dtype)


def _whole(node: Node, value: Any, dtype: str) -> Any:
    """Return whole numbers of a type, as a cast makes them: cut towards zero, within its bounds."""
    bounds = np.iinfo(dtype)
    return node.emit(relax.op.clip(value, float(bounds.min), float(bounds.max)))


def _along(node: Node, value: Any, k: int, axis: Axis, kind: str) -> Any:
    count, taps = axis.places.shape

    def compute(data: Any, places: Any, weights: Any) -> Any:
        shape = [int(extent) for extent in data.shape]
        shape[k] = count
        over = te.reduce_axis((0, taps), name="tap")

        def element(*at: Any) -> Any:
            own = list(at)
            own[k] = places(at[k], over)
            return te.sum(data(*own) * weights(at[k], over), axis=over)

        return te.compute(shape, element, name="resized")

    return node.compute(compute, value, relax.const(axis.places, "int64"), node.const(axis.weights, kind))


def upsample(node: Node) -> Any:
    """Upsample of old operator sets: as Resize of opset 10."""
    node.opset = 10
    if "height_scale" in node.attributes:
        node.attributes = node.attributes | {
            "scales": [1.0, 1.0, node.number("height_scale", 1), node.number("width_scale", 1)]
        }
    if node.text("mode", "nearest") == "bilinear":
        node.attributes = node.attributes | {"mode": b"linear"}
    return resize(node)


CONVERTERS: dict[str, Callable[[Node], Any]] = {"Resize": resize, "Upsample": upsample}
