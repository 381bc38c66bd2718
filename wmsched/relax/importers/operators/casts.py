"""Casts, and the names of element types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tvm import relax
from tvm.ir import Constant

from wmsched.relax.importers.operators.node import TYPES, Node


def type_named(node: Node, number: int) -> str:
    """Return the name of an ONNX element type; refuse one that programs do not compute with."""
    word = TensorProto.DataType.Name(number)
    if word in ("STRING", "UNDEFINED"):
        node.refuse(f"elements of the type {word} are not supported")
    dtype = str(np.dtype(helper.tensor_dtype_to_np_dtype(number)))
    if dtype not in TYPES:
        node.refuse(f"elements of the type {word} are not supported")
    return dtype


def cast(node: Node) -> Any:
    return _cast(node, type_named(node, node.integer("to")))


def cast_like(node: Node) -> Any:
    return _cast(node, node.dtype(1))


def _cast(node: Node, dtype: str) -> Any:
    value = node.inputs[0]
    if isinstance(value, Constant):
        with np.errstate(all="ignore"):
            import ml_dtypes  # noqa: F401  its types by name

            return relax.const(value.value.numpy().astype(np.dtype(dtype)), dtype)
    if dtype == "bool":  # NaN is true, as all that is not 0
        return (
            node.emit(relax.op.not_equal(value, node.const(0, node.dtype())))
            if node.dtype() != "bool"
            else value
        )
    return node.cast(value, dtype)


CONVERTERS: dict[str, Callable[[Node], Any]] = {"Cast": cast, "CastLike": cast_like}
