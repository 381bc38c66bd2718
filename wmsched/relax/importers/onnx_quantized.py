"""ONNX models of 8-bit numbers, with what TVM's importer lacks written out in float32.

onnxruntime's quantizers write QLinearConv, QLinearMatMul and operators of their own (`QuantFormat.QOperator`)
or ConvInteger and MatMulInteger (`quantize_dynamic`). Sums of products of 8-bit numbers are exact in float32
up to 2^24, and one part in 2^24 off beyond; processors multiply and add float32 faster than TVM's int32.
Weights become float32 when TVM folds constants, and are then tuned as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from wmsched.relax.importers.onnx_fold import rebuilt

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


# New nodes of an ONNX graph, which compute of quantized tensors what they stand for, in float32.


FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
LAST = (-1,)  # the shape of one scale for each extent of the last axis


class Writer:
    """The new graph's nodes, with names that the old one has not.

    Parameters
    ----------
    model : onnx.ModelProto
        The old one.

    Attributes
    ----------
    extents, kinds : dict
        Shape and element type, by name, of what the old one says them of.
    """

    def __init__(self, model: Any) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        graph = model.graph
        self.extents = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self.kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info):
            self.kinds.setdefault(value.name, value.type.tensor_type.elem_type)
        for node in graph.node:
            if node.op_type == "DynamicQuantizeLinear":  # its scale and zero point are of the whole tensor
                self.extents |= {name: () for name in node.output[1:]}
            elif node.op_type == "Constant" and node.attribute[0].name == "value":
                self.extents[node.output[0]] = tuple(node.attribute[0].t.dims)
                self.kinds[node.output[0]] = node.attribute[0].t.data_type
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}

    def tried(self, write: Callable[[Writer, Any], None], node: Any) -> bool:
        """Whether `write` knows the node in this form; else nothing of it stays."""
        nodes, constants = len(self.nodes), len(self.constants)
        try:
            write(self, node)
        except (KeyError, IndexError, TypeError, ValueError):  # a shape that is computed; too few inputs
            del self.nodes[nodes:], self.constants[constants:]
            return False
        return True

    def add(self, kind: str, inputs: Iterable[str], output: str = "", **attributes: Any) -> str:
        """Append a node; the name of its output."""
        output = output or self._fresh(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def shaped(self, name: str, shape: tuple[int, ...]) -> str:
        """A scale or zero point in `shape`, where it is not one number for the whole tensor.

        KeyError where nothing says how many it is.
        """
        if len(self.extents[name]) != 1 or self.extents[name] == (1,):
            return name
        return self.add("Reshape", (name, self.constant(np.array(shape, np.int64))))

    def constant(self, value: Any) -> str:
        """Name of an array."""
        name = self._fresh("constant")
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def shifted(self, name: str, zero: str, shape: tuple[int, ...] = LAST) -> str:
        """Whole numbers less their zero point, as float32."""
        number = self.add("Cast", (name,), to=FLOAT)
        if not zero:
            return number
        return self.add("Sub", (number, self.add("Cast", (self.shaped(zero, shape),), to=FLOAT)))

    def real(self, name: str, scale: str, zero: str, shape: tuple[int, ...] = LAST) -> str:
        """What a quantized tensor stands for: (number - zero point) * scale."""
        return self.add("Mul", (self.shifted(name, zero, shape), self.shaped(scale, shape)))

    def bias(self, name: str, scale: str) -> str:
        """What an int32 bias stands for; it has no zero point."""
        return self.add("Mul", (self.add("Cast", (name,), to=FLOAT), scale))

    def quantized(self, name: str, scale: str, zero: str, output: str, *, like: Iterable[str]) -> None:
        """Round `name` to `output`.

        Without a zero point it gets the type of one of `like`, an input's zero point and the input, for ONNX
        would have it unsigned. IndexError where neither's type is known.
        """
        kinds = [self.kinds[each] for each in (zero, *like) if self.kinds.get(each)]
        if not zero:
            zero = self.constant(np.zeros((), helper.tensor_dtype_to_np_dtype(kinds[0])))
        self.add("QuantizeLinear", (name, scale, zero), output)
        if kinds:
            self.kinds[output] = kinds[0]

    def _fresh(self, word: str) -> str:
        number = len(self._taken)
        while (name := f"wmsched_{word}_{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name
