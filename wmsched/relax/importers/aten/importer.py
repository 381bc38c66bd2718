"""TVM's importer of PyTorch's programs with the table's converters, and each result's shape and type checked.

PyTorch's program says what shape and type each of its operators gives. A converter that gives another one is
wrong, and the model is refused with the operator's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from tvm import relax, tirx
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from wmsched.relax.importers.aten.node import Node
from wmsched.relax.importers.aten.table import COMPLEX, DATA, DOMAINS, OURS, REFUSED, WRONG
from wmsched.relax.importers.operators.node import TYPES, Refused
from wmsched.relax.importers.shapes import short

MISSING = "it is not supported"
WHOLE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class Importer(ExportedProgramImporter):
    """Importer with errors that name the operator."""

    env: dict[Any, Any]
    block_builder: Any

    def create_convert_map(self) -> dict[str, Callable[[Any], Any]]:
        """Return a converter for each operator, ours before TVM's."""
        self.stock = super().create_convert_map()
        names = dict.fromkeys([*self.stock, *(name.split(".", 1)[1] for name in OURS)])
        return dict.fromkeys(names, self._convert)

    def _check_unsupported_func_type(self, nodes: Iterable[Any]) -> None:
        check(nodes)

    def _convert(self, node: Any) -> Any:
        try:
            self._check_arguments(node)
            return self._checked(node, self._found(node))
        except Refused as error:
            said = str(error)
            raise Refused(said if said.startswith(label(node)) else f"{label(node)}: {said}") from error
        except Exception as error:  # of TVM's converters; no common base
            raise Refused(f"{label(node)}: its importer does not take this form ({short(error)})") from error

    def _found(self, node: Any) -> Any:
        ours = OURS.get(str(node.target))
        stock = self.stock.get(node.target.__name__)
        if ours is None or (stock is not None and has_open_sizes(node)):
            return stock(node)
        found = ours(Node(node, self))
        return stock(node) if found is NotImplemented and stock is not None else found

    def _check_arguments(self, node: Any) -> None:
        for argument in node.all_input_nodes:
            kind = getattr(self.env.get(argument), "ty", None)
            if isinstance(kind, relax.TensorType) and str(kind.dtype) not in TYPES:
                raise Refused(f"elements of the type {kind.dtype} are not supported")

    def _checked(self, node: Any, found: Any) -> Any:
        """Return a converter's result; refuse another shape or type than PyTorch's."""
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(found, relax.Expr):
            return self._same(node, value, self.block_builder.normalize(found))
        if isinstance(value, (tuple, list)) and isinstance(found, (tuple, list)):
            several = [
                self._same(node, one, self.block_builder.normalize(other))
                if isinstance(one, torch.Tensor) and isinstance(other, relax.Expr)
                else other
                for one, other in zip(value, found)
            ]
            return type(found)(several)
        return found

    def _same(self, node: Any, value: torch.Tensor, found: Any) -> Any:
        kind = found.ty
        if not isinstance(kind, relax.TensorType):
            return found
        dtype = str(value.dtype)[6:]
        if kind.shape is not None:
            extents = [one.value if isinstance(one, tirx.IntImm) else None for one in kind.shape]
            wanted = [one if isinstance(one, int) else None for one in value.shape]
            if len(extents) != len(wanted) or any(
                a != b for a, b in zip(extents, wanted) if a is not None and b is not None
            ):
                raise Refused(f"its importer gives the shape {extents}, and PyTorch {wanted}")
        if str(kind.dtype) == dtype:
            return found
        if str(kind.dtype) in WHOLE and dtype in WHOLE and dtype != "bool":
            return self.block_builder.emit(relax.op.astype(found, dtype))
        raise Refused(f"its importer gives the type {kind.dtype}, and PyTorch {dtype}")


def check(nodes: Iterable[Any]) -> None:
    """Refuse calls without a converter, types that are not computed with, numbers as results, open sizes."""
    nodes = list(nodes)
    for node in nodes:
        if node.op == "call_function" and (why := lacks(node)):
            raise Refused(f"{label(node)}: {why}")
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and node.users:
            dtype, user = str(value.dtype)[6:], next(iter(node.users))
            if dtype not in TYPES:
                raise Refused(f"{label(user)}: elements of the type {dtype} are not supported")
        for made in node.all_input_nodes if node.op == "output" else ():
            if isinstance(made.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise Refused(f"{label(made)}: the model returns a number that it computes: return a tensor")

    for node in nodes:
        if node.op == "call_function" and _is_open(node.meta.get("val")):
            raise Refused(f"{label(node)}: {DATA}")


def _is_open(value: Any) -> bool:
    """Return whether a result has a size that hangs on data."""
    several = value if isinstance(value, (tuple, list)) else [value]
    tensors = [one for one in several if isinstance(one, torch.Tensor)]
    return any(
        free_unbacked_symbols(size) for one in tensors for size in one.shape if not isinstance(size, int)
    )


@functools.cache
def stock_names() -> frozenset[str]:
    """Return the names of TVM's converters that are trusted."""
    return frozenset(ExportedProgramImporter().convert_map) - set(WRONG)


def is_known(node: Any) -> bool:
    """Return whether the operator of a call has a converter, or is refused at sight."""
    return lacks(node) != MISSING


def lacks(node: Any) -> str:
    """Say why a call has no converter; "" where it has one."""
    target = node.target
    name = getattr(target, "__name__", str(target))
    if name == "with_effects":
        return REFUSED.get(node.args[1].__name__.split(".")[0], MISSING)
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in DOMAINS:
            return f"operators of {target.namespace!r} are not known here"
        if (opname := name.split(".")[0]) in REFUSED:
            return REFUSED[opname]
    if complex_in(node):
        return COMPLEX
    if target is torch.ops.aten.index.Tensor and any(map(_is_mask, node.args[1])):
        return DATA
    return "" if str(target) in OURS or name in stock_names() else MISSING


def _is_mask(index: Any) -> bool:
    value = index.meta.get("val") if isinstance(index, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)


def has_open_sizes(node: Any) -> bool:
    """Return whether the shapes of what a call reads or makes have symbols."""
    for each in (node, *node.all_input_nodes):
        value = each.meta.get("val")
        for one in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(one, torch.Tensor) and not all(isinstance(extent, int) for extent in one.shape):
                return True
    return False


def label(node: Any) -> str:
    """Return an operator's name as PyTorch prints it."""
    target = node.args[1] if getattr(node.target, "__name__", "") == "with_effects" else node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(getattr(target, "__name__", target))


def complex_in(node: Any) -> bool:
    """Return whether a call reads or makes complex numbers."""
    for each in (node, *node.all_input_nodes):
        value = each.meta.get("val")
        for one in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(one, torch.Tensor) and one.is_complex():
                return True
    return False


def imported(program: Any) -> Any:
    """Return the Relax module of a program in PyTorch's core operators.

    Raises
    ------
    Refused
        An operator is not supported in its form: the message names it.
    """
    check(program.graph.nodes)
    return Importer().from_exported_program(program, False, False, False, None)
