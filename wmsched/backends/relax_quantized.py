"""ONNX models of 8-bit numbers, with what TVM's importer lacks written out in float32.

onnxruntime's quantizers write QLinearConv, QLinearMatMul and operators of their own (`QuantFormat.QOperator`)
or ConvInteger and MatMulInteger (`quantize_dynamic`). Sums of products of 8-bit numbers are exact in float32
up to 2^24, and one part in 2^24 off beyond; processors multiply and add float32 faster than TVM's int32.
Weights become float32 when TVM folds constants, and are then tuned as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from wmsched.backends.relax_onnx import rebuilt
from wmsched.backends.relax_writer import INT32, Writer

MICROSOFT = "com.microsoft"
COLUMNS, ROWS = (1, -1), (-1, 1)  # shapes of one scale for each of a matrix's columns or rows

POINTWISE = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}


def written_out(model: Any) -> Any:
    """The model with operators on quantized tensors as operators on float32; itself if it has none.

    Parameters
    ----------
    model : onnx.ModelProto
        With its weights in memory. It stays as it is.

    Notes
    -----
    An operator in a form that is not known here stays, and TVM's importer says that it lacks it.
    """
    writer = Writer(model)
    for node in model.graph.node:
        write = WRITERS.get((node.domain, node.op_type))
        if write is None or not writer.tried(write, node):
            writer.nodes.append(node)
    if len(writer.nodes) == len(model.graph.node):
        return model
    graph = model.graph
    return rebuilt(model, writer.nodes, [*graph.initializer, *writer.constants], list(graph.input))


def _attributes(node: Any) -> dict[str, Any]:
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def _input(node: Any, place: int) -> str:
    """An optional input, "" where it is left out."""
    return str(node.input[place]) if place < len(node.input) else ""


def _tensor(node: Any, place: int) -> tuple[str, str]:
    """The zero point of a quantized input, then the input itself: the one may be left out."""
    return _input(node, place + 2), node.input[place]


def _channels(writer: Writer, weight: str) -> tuple[int, ...]:
    """Shape of one number for each of a convolution's outputs; KeyError where its rank is not known."""
    return (-1,) + (1,) * (len(writer.extents[weight]) - 1)


def _conv_integer(writer: Writer, node: Any) -> None:
    shape = _channels(writer, node.input[1])
    data = writer.shifted(node.input[0], _input(node, 2))
    weight = writer.shifted(node.input[1], _input(node, 3), shape)
    total = writer.add("Conv", (data, weight), **_attributes(node))
    writer.add("Cast", (total,), node.output[0], to=INT32)


def _matmul_integer(writer: Writer, node: Any) -> None:
    left = writer.shifted(node.input[0], _input(node, 2), ROWS)
    right = writer.shifted(node.input[1], _input(node, 3), COLUMNS)
    writer.add("Cast", (writer.add("MatMul", (left, right)),), node.output[0], to=INT32)


def _conv(writer: Writer, node: Any) -> None:
    data, scale, zero, weight, weight_scale, weight_zero, out_scale, out_zero = node.input[:8]
    shape = _channels(writer, weight)
    inputs = [writer.real(data, scale, zero), writer.real(weight, weight_scale, weight_zero, shape)]
    if bias := _input(node, 8):  # int32, of scale * weight_scale
        inputs.append(writer.bias(bias, writer.add("Mul", (scale, weight_scale))))
    total = writer.add("Conv", inputs, **_attributes(node))
    writer.quantized(total, out_scale, out_zero, node.output[0], like=_tensor(node, 0))


def _matmul(writer: Writer, node: Any) -> None:
    left, left_scale, left_zero, right, right_scale, right_zero, out_scale, out_zero = node.input[:8]
    product = writer.add(
        "MatMul",
        (
            writer.real(left, left_scale, left_zero, ROWS),
            writer.real(right, right_scale, right_zero, COLUMNS),
        ),
    )
    writer.quantized(product, out_scale, out_zero, node.output[0], like=_tensor(node, 0))


def _gemm(writer: Writer, node: Any) -> None:
    left, left_scale, left_zero, right, right_scale, right_zero = node.input[:6]
    attributes = _attributes(node)
    columns = ROWS if attributes.get("transB", 0) else COLUMNS
    result = writer.add(
        "Gemm",
        (
            writer.real(left, left_scale, left_zero),
            writer.real(right, right_scale, right_zero, columns),
        ),
        **attributes,
    )
    if bias := _input(node, 6):  # int32, of alpha * both scales
        alpha = writer.constant(np.float32(attributes.get("alpha", 1.0)))
        scale = writer.add("Mul", (writer.add("Mul", (left_scale, right_scale)), alpha))
        result = writer.add("Add", (result, writer.bias(bias, scale)))
    if out_scale := _input(node, 7):
        writer.quantized(result, out_scale, _input(node, 8), node.output[0], like=_tensor(node, 0))
    else:
        writer.add("Identity", (result,), node.output[0])


def _pointwise(writer: Writer, node: Any) -> None:
    left, right = (writer.real(*node.input[start : start + 3]) for start in (0, 3))
    result = writer.add(POINTWISE[node.op_type], (left, right))
    writer.quantized(result, node.input[6], _input(node, 7), node.output[0], like=_tensor(node, 0))


def _unary(writer: Writer, node: Any) -> None:
    attributes = _attributes(node)
    if attributes.pop("channels_last", 0):
        raise ValueError("ONNX's own operators have the channels first")
    data = writer.real(*node.input[:3])
    result = writer.add(UNARY[node.op_type], (data,), **attributes)
    writer.quantized(result, node.input[3], _input(node, 4), node.output[0], like=_tensor(node, 0))


def _softmax(writer: Writer, node: Any) -> None:
    attributes = _attributes(node)
    axis = attributes.get("axis", -1)
    data = writer.real(*node.input[:3])
    if attributes["opset"] >= 13:
        result = writer.add("Softmax", (data,), axis=axis)
    else:  # it was over all axes from that one on
        flat = writer.add("Flatten", (data,), axis=axis)
        shape = writer.add("Shape", (node.input[0],))
        result = writer.add("Reshape", (writer.add("Softmax", (flat,), axis=1), shape))
    writer.quantized(result, node.input[3], _input(node, 4), node.output[0], like=_tensor(node, 0))


def _where(writer: Writer, node: Any) -> None:
    chosen, other = (writer.real(*node.input[start : start + 3]) for start in (1, 4))
    result = writer.add("Where", (node.input[0], chosen, other))
    writer.quantized(result, node.input[7], _input(node, 8), node.output[0], like=_tensor(node, 1))


def _concat(writer: Writer, node: Any) -> None:
    out_scale, out_zero, *inputs = node.input
    parts = [writer.real(*inputs[start : start + 3]) for start in range(0, len(inputs), 3)]
    result = writer.add("Concat", parts, **_attributes(node))
    writer.quantized(result, out_scale, out_zero, node.output[0], like=_tensor(node, 2))


WRITERS: dict[tuple[str, str], Callable[[Writer, Any], None]] = {
    ("", "ConvInteger"): _conv_integer,
    ("", "MatMulInteger"): _matmul_integer,
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    (MICROSOFT, "QGemm"): _gemm,
    (MICROSOFT, "QLinearConcat"): _concat,
    (MICROSOFT, "QLinearSoftmax"): _softmax,
    (MICROSOFT, "QLinearWhere"): _where,
    **{(MICROSOFT, name): _pointwise for name in POINTWISE},
    **{(MICROSOFT, name): _unary for name in UNARY},
}
