"""Writing of rows into a state where it lies, in place of a copy with the rows in it.

A static cache is written by indices: ONNX's ScatterElements and ScatterND, PyTorch's index_copy and
index_put. As functions of values each copies the whole cache to write a token's rows. Where nothing else
reads the cache as it was, the rows are written into the input's own memory.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.product import kernel
from wmsched.relax.passes.wide_fusion import shape_of
from wmsched.relax.state.declare import ATTRIBUTE, returned, stateful

__all__ = ["in_place"]

logger = logging.getLogger("wmsched")

RESHAPE, PERMUTE, BROADCAST = "relax.reshape", "relax.permute_dims", "relax.broadcast_to"
ELEMENTS, ND = "relax.scatter_elements", "relax.scatter_nd"
SHAPE = "relax.shape_of"
UPDATE = "update"  # the reduction that writes

Shape = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """A reshape, or a permutation of axes, from one shape to another."""

    axes: tuple[int, ...] | None
    before: Shape
    after: Shape


@dataclass(frozen=True)
class Write:
    """Rows that are written into a state.

    Parameters
    ----------
    parameter : relax.Var
    result : relax.Var
        The state with the rows in it.
    scatter : relax.Call
    back : tuple of View
        From what the scatter gives to the result.
    """

    parameter: Any
    result: Any
    scatter: Any
    back: tuple[View, ...]


def in_place(module: Any, target: Any) -> Any:
    """Return a module of Relax operators that writes its states in place, where nothing reads them before.

    Parameters
    ----------
    module : tvm.IRModule
        As `declare.declared` marked it; a module without states is returned as it is.
    """
    main = stateful(module, target)
    if main is None:
        return module
    writes = _writes(main, [int(place) for place in main.attrs[ATTRIBUTE]])
    if not writes:
        return module
    logger.info("wmsched: %d states are written in place", len(writes))
    return relax.transform.DeadCodeElimination()(_written(module, main, writes))


def _writes(function: Any, places: Sequence[int]) -> list[Write]:
    """Return the writes that can be made in place."""
    bound: dict[Any, Any] = {}
    readers: dict[Any, list[Any]] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                return []
            bound[binding.var] = binding.value
            if _name(binding.value) == SHAPE:  # reads no element
                continue
            for variable in relax.analysis.free_vars(binding.value):
                readers.setdefault(variable, []).append(binding.var)
    outputs = returned(function)
    found = []
    for place in places:
        parameter = function.params[place]
        chain = _chain(parameter, bound, readers, outputs)
        if chain is not None:
            found.append(chain)
    return found


def _chain(
    parameter: Any, bound: Mapping[Any, Any], readers: Mapping[Any, Sequence[Any]], outputs: Sequence[Any]
) -> Write | None:
    """Return the write that a state goes through: views, a scatter, and the views back; None without one."""
    there: list[View] = []
    back: list[View] = []
    scatter: Any = None
    variable = parameter
    while True:
        if scatter is not None and _same(there, back, _extents(parameter)):
            return Write(parameter, variable, scatter, tuple(back))
        following = readers.get(variable, ())
        if len(following) != 1 or any(variable.same_as(one) for one in outputs):
            return None
        call = bound[following[0]]
        view = _view(call)
        if view is not None:
            (there if scatter is None else back).append(view)
        elif scatter is None and _is_write(call, variable):
            scatter = call
        else:
            return None
        variable = following[0]


def _is_write(call: Any, variable: Any) -> bool:
    name = _name(call)
    return (
        name in (ELEMENTS, ND)
        and str(call.attrs.reduction) == UPDATE
        and call.args[0].same_as(variable)
        and not any(variable.same_as(one) for one in call.args[1:])
        and all(shape_of(one) is not None for one in call.args)
    )


def _view(call: Any) -> View | None:
    name = _name(call)
    if name not in (RESHAPE, PERMUTE):
        return None
    before, after = shape_of(call.args[0]), shape_of(call)
    if before is None or after is None:
        return None
    if name == RESHAPE:
        return View(None, before, after)
    axes = call.attrs.axes
    order = tuple(reversed(range(len(before)))) if axes is None else tuple(int(axis) for axis in axes)
    return View(tuple(axis % len(before) for axis in order), before, after)


@functools.lru_cache(maxsize=64)
def _order(views: tuple[View, ...], shape: Shape) -> Any:
    """Return where each element comes from, in the order of the last view."""
    found = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    for view in views:
        found = found.reshape(view.after) if view.axes is None else found.transpose(view.axes)
    return found


def _same(there: Sequence[View], back: Sequence[View], shape: Shape) -> bool:
    """Whether views there and back leave each element in its place."""
    found = _order((*there, *back), shape)
    return found.shape == shape and bool((found.reshape(-1) == np.arange(found.size)).all())


def _name(call: Any) -> str:
    return str(getattr(getattr(call, "op", None), "name", "")) if isinstance(call, relax.Call) else ""


def _written(module: Any, main: Any, writes: Sequence[Write]) -> Any:
    """Return the module with the writes in place."""
    by_result = {write.result: write for write in writes}
    bound = {each.var: each.value for block in main.body.blocks for each in block.bindings}
    builder = relax.BlockBuilder(module)
    blocks = []
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            write = by_result.get(binding.var)
            if write is None:
                bindings.append(binding)
                continue
            places, values = write.scatter.args[1:]
            # rows of one place each, whose places were repeated for each element
            if _name(bound.get(places)) == BROADCAST and write.scatter.op.name == ELEMENTS:
                narrow = bound[places].args[0]
                places = narrow if len(_extents(narrow)) == len(_extents(places)) else places
            function = builder.add_func(_kernel(write, places, values), "cache_write")
            call = relax.call_tir_inplace(
                function, relax.Tuple([write.parameter, places, values]), [0], binding.var.ty
            )
            bindings.append(relax.VarBinding(binding.var, builder.normalize(call)))
        kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
        blocks.append(kind(bindings))
    body = relax.SeqExpr(blocks, main.body.body)
    function = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    made = builder.get()
    made["main"] = function
    return made


def _kernel(write: Write, places: Any, values: Any) -> Any:
    """Return the function that writes rows into a state."""
    scattered = _extents(write.scatter.args[0])
    result = _extents(write.result)
    rows, index = _extents(values), _extents(places)
    wanted = {
        "state": (result, str(write.parameter.ty.dtype)),
        "places": (index, str(places.ty.dtype)),
        "values": (rows, str(values.ty.dtype)),
    }
    if write.scatter.op.name == ELEMENTS:
        axis = int(write.scatter.attrs.axis) % len(scattered)
        along = functools.partial(_by_element, scattered, index, axis)
    else:
        along = functools.partial(_by_row, scattered, index)

    def body(flat: Mapping[str, Any]) -> None:
        def inner(own: Sequence[Any]) -> None:
            place = along(flat["places"], own)
            for view in write.back:
                place = _through(view, place)
            value = flat["values"][_flattened(own, rows)]
            T.buffer_store(flat["state"], value, [_flattened(place, result)])

        _loops(rows, inner, ())

    return kernel("cache_write", wanted, body)


def _extents(expression: Any) -> Shape:
    """Return a shape that is known: of a state, or of what is written into one."""
    shape = shape_of(expression)
    if shape is None:
        raise ValueError(f"{expression} has no fixed shape")
    return shape


def _loops(extents: Sequence[int], inner: Callable[[Sequence[Any]], None], own: tuple[Any, ...]) -> None:
    if len(own) == len(extents):
        inner(own)
        return
    with T.serial(0, extents[len(own)]) as variable:
        _loops(extents, inner, (*own, variable))


def _by_element(scattered: Shape, index: Shape, axis: int, places: Any, own: Sequence[Any]) -> list[Any]:
    """Return where an element of ScatterElements goes: its own place, but along the axis."""
    at = [0 if extent == 1 else place for extent, place in zip(index, own)]
    return [
        _from_the_front(places[_flattened(at, index)], scattered[k]) if k == axis else place
        for k, place in enumerate(own)
    ]


def _by_row(scattered: Shape, index: Shape, places: Any, own: Sequence[Any]) -> list[Any]:
    """Return where an element of ScatterND goes: the axes that an index names, and its own beyond."""
    outer, count = own[: len(index) - 1], index[-1]
    named = [_from_the_front(places[_flattened([*outer, k], index)], scattered[k]) for k in range(count)]
    return [*named, *own[len(index) - 1 :]]


def _from_the_front(place: Any, extent: int) -> Any:
    wide = tirx.Cast("int64", place) if str(place.ty.dtype) != "int64" else place
    return tirx.Select(wide < 0, wide + tirx.const(extent, "int64"), wide)


def _through(view: View, place: Sequence[Any]) -> list[Any]:
    """Return where an element is after a view."""
    if view.axes is not None:
        return [place[axis] for axis in view.axes]
    flat, found = _flattened(place, view.before), []
    for extent in reversed(view.after):
        found.append(tvm.tirx.floormod(flat, extent))
        flat = tvm.tirx.floordiv(flat, extent)
    return found[::-1]


def _flattened(place: Sequence[Any], shape: Sequence[int]) -> Any:
    found: Any = 0
    for one, extent in zip(place, shape, strict=True):
        found = found * extent + one
    return found
