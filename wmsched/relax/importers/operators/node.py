"""Node of an ONNX graph as a converter sees it: inputs as Relax expressions, attributes, ways to refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from tvm import relax, tirx
from tvm.ir import Constant

from wmsched.base.errors import WmschedError
from wmsched.relax.passes.wide_fusion import shape_of

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
#: Element types that programs compute with; an operator on another type is refused by name.
TYPES = ("bool", *INTEGERS, *FLOATS)


class Refused(WmschedError):
    """An operator is not supported in this form."""


class Node:
    """Node to convert.

    Attributes
    ----------
    kind : str
        The operator's name.
    builder : relax.BlockBuilder
    inputs : list of relax.Expr or None
        None for an omitted input, also beyond the last.
    attributes : dict
        Values of ONNX's attributes by name; strings as bytes.
    opset : int
        Version of the operator's domain.
    outputs : list of str
        Names; "" for an omitted output.
    params : object
        What TVM's converters take besides.
    """

    def __init__(
        self,
        kind: str,
        builder: Any,
        inputs: Any,
        attributes: dict[str, Any],
        opset: int,
        outputs: Sequence[str],
        params: Any,
    ) -> None:
        self.kind, self.builder, self.opset, self.params = kind, builder, opset, params
        self.inputs, self.attributes, self.outputs = inputs, attributes, list(outputs)

    def refuse(self, why: str) -> NoReturn:
        """Raise `Refused`: the operator's name and why."""
        raise Refused(f"{self.kind}: {why}")

    def has(self, place: int) -> bool:
        """Return whether an input is given."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def wants(self, place: int) -> bool:
        """Return whether an output is read or returned."""
        return place < len(self.outputs) and bool(self.outputs[place])

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """Return the shape of an input."""
        return self.shape_of(self.inputs[place], f"input {place}")

    def shape_of(self, value: Any, what: str = "an input") -> tuple[int, ...]:
        """Return the shape of an expression; refuse where it hangs on data."""
        if not isinstance(value.ty, relax.TensorType):
            self.refuse(f"{what} is no tensor")
        shape = shape_of(value)
        if shape is None:
            self.refuse(f"the shape of {what} hangs on data, and programs have fixed shapes")
        return tuple(int(extent) for extent in shape)

    def dtype(self, place: int = 0) -> str:
        """Return the element type of an input."""
        return str(self.inputs[place].ty.dtype)

    def constant(self, place: int, what: str) -> np.ndarray:
        """Return the value of an input that must be known; refuse where it is computed."""
        value = self.inputs[place]
        if not isinstance(value, Constant):
            self.refuse(f"{what} is computed by the model, and must be known when it is built")
        return value.value.numpy()

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a string."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def number(self, name: str, default: float) -> float:
        return float(self.attributes.get(name, default))

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.attributes.get(name, default))

    def numbers(self, name: str) -> list[int] | None:
        """Return an attribute that is a list of integers; None where it is not given."""
        value = self.attributes.get(name)
        return None if value is None else [int(one) for one in value]

    def axis(self, value: int, rank: int) -> int:
        """Return an axis counted from the front; refuse one that the tensor lacks."""
        if not -rank <= value < max(rank, 1):
            self.refuse(f"axis {value} is beyond {rank} dimensions")
        return value % max(rank, 1)

    def emit(self, value: Any) -> Any:
        return self.builder.emit(value)

    def const(self, value: Any, dtype: str) -> Any:
        return constant(value, dtype)

    def compute(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a tensor expression: `function` of tensors gives a tensor or several."""
        return self.builder.emit_te(function, *given, primfunc_name_hint=self.kind.lower())

    def cast(self, value: Any, dtype: str) -> Any:
        return value if str(value.ty.dtype) == dtype else self.emit(relax.op.astype(value, dtype))

    def empty(self, shape: Sequence[int], like: Any) -> Any:
        """Return a tensor without elements, of another's type. (TVM cannot store a constant without any.)"""
        from tvm import te

        dtype = str(like.ty.dtype)

        def compute(_: Any) -> Any:
            return te.compute(tuple(shape), lambda *place: tirx.const(0, dtype), name="empty")

        return self.builder.emit_te(compute, like, primfunc_name_hint="empty")

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        return self.emit(relax.op.reshape(value, tuple(int(one) for one in shape)))


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def constant(value: Any, dtype: str) -> Any:
    """Return a constant of Relax of a number or an array."""
    if dtype == "bfloat16":  # which numpy lacks
        import ml_dtypes

        return relax.const(np.asarray(value, ml_dtypes.bfloat16), dtype)
    return relax.const(np.asarray(value, dtype), dtype)


def least(dtype: str) -> Any:
    """Return the smallest value of a type as a constant: minus infinity of floating-point types."""
    return tirx.const(float("-inf"), dtype) if is_float(dtype) else tirx.min_value(dtype)


def greatest(dtype: str) -> Any:
    """Return the largest value of a type as a constant: infinity of floating-point types."""
    return tirx.const(float("inf"), dtype) if is_float(dtype) else tirx.max_value(dtype)
