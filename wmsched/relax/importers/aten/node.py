"""Node of an exported graph as a converter sees it: arguments by name, the result's shape and type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tvm import relax, te, tirx

from wmsched.relax.importers.operators.node import Refused, constant, is_float

__all__ = ["Node", "copied", "is_float", "long"]


class Node:
    """Node to convert.

    Parameters
    ----------
    fx : torch.fx.Node
    importer : tvm.relax.frontend.torch.exported_program_translator.ExportedProgramImporter
    """

    def __init__(self, fx: Any, importer: Any) -> None:
        self.fx, self.importer, self.builder = fx, importer, importer.block_builder
        self.name = str(fx.target)
        self.arguments: dict[str, Any] = {}
        self.sources: dict[str, Any] = {}  # nodes of the graph, and what else was given
        given = fx.args
        for k, argument in enumerate(fx.target._schema.arguments):
            value = fx.kwargs.get(
                argument.name, argument.default_value if argument.has_default_value() else None
            )
            value = given[k] if k < len(given) else value
            self.sources[argument.name] = value
            self.arguments[argument.name] = importer._retrieve_args(value)
        self.first = next(iter(self.arguments), "")

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def of(self, fx: Any) -> Any:
        """Return the tensor that another node of the graph gives."""
        return self.importer._retrieve_args(fx)

    def has(self, name: str) -> bool:
        """Return whether an argument is given."""
        return self.arguments.get(name) is not None

    def refuse(self, why: str) -> NoReturn:
        """Raise `Refused`: the operator's name and why."""
        raise Refused(f"{self.name}: {why}")

    def result(self, place: int = 0) -> Any:
        """Return the example of a result."""
        value = self.fx.meta["val"]
        return value[place] if isinstance(value, (tuple, list)) else value

    def dtype(self, place: int = 0) -> str:
        """Return the element type of a result."""
        return str(self.result(place).dtype)[6:]

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """Return the shape of a result."""
        return self.known(self.result(place).shape)

    def known(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Return sizes as numbers; refuse where the program leaves them open."""
        if not all(isinstance(one, int) for one in sizes):
            self.refuse("it needs sizes that are numbers: export the model again without dynamic shapes")
        return tuple(int(one) for one in sizes)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of an argument."""
        return self.known(self.sources[name].meta["val"].shape)

    def dtype_of(self, value: Any) -> str:
        return str(value.ty.dtype)

    def axis(self, axis: int, rank: int) -> int:
        return axis % max(rank, 1)

    def axes(self, value: Any, rank: int) -> list[int]:
        """Return axes from the front; all of them for None and for none."""
        if value is None or (isinstance(value, (list, tuple)) and not value):
            return list(range(rank))
        several = value if isinstance(value, (list, tuple)) else [value]
        return sorted({one % max(rank, 1) for one in several}) if rank else []

    def emit(self, value: Any) -> Any:
        return self.builder.emit(value)

    def const(self, value: Any, dtype: str) -> Any:
        return constant(value, dtype)

    def value(self, name: str, dtype: str) -> Any:
        """Return an argument, a tensor or a number, as an expression of a type."""
        found = self.arguments[name]
        return self.cast(found, dtype) if isinstance(found, relax.Expr) else self.const(found, dtype)

    def cast(self, value: Any, dtype: str) -> Any:
        """Return a tensor in another type, as PyTorch casts: truth is what is not 0."""
        old = self.dtype_of(value)
        if old == dtype:
            return value
        if dtype == "bool":
            return self.emit(relax.op.not_equal(value, self.const(0, old)))
        return self.emit(relax.op.astype(value, dtype))

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        return self.emit(relax.op.reshape(value, tuple(int(one) for one in shape)))

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a tensor expression: `function` of tensors gives a tensor or several."""
        hint = self.name.removeprefix("aten.").replace(".", "_")
        return self.builder.emit_te(function, *given, primfunc_name_hint=hint)

    def elements(self, shape: Sequence[int], element: Callable[..., Any], *given: Any) -> Any:
        """Return a tensor of which `element` of the input tensors gives a function of a place."""
        if math.prod(shape) == 0:
            return self.empty(shape, str(self.dtype()), *given[:1])
        return self.compute(lambda *tensors: te.compute(long(shape), element(*tensors), name="out"), *given)

    def empty(self, shape: Sequence[int], dtype: str, *like: Any) -> Any:
        """Return a tensor without elements. (TVM cannot store a constant without any.)"""
        return self.emit(relax.op.zeros(tuple(shape), dtype))


def long(shape: Sequence[int]) -> list[Any]:
    """Return sizes as 64-bit numbers, so that places are 64-bit as well."""
    return [tirx.IntImm("int64", int(one)) for one in shape]


def copied(tensor: Any) -> Any:
    """Return a tensor of its own: a result of several has none."""
    return te.compute(tensor.shape, lambda *place: tensor(*place), name="part")
