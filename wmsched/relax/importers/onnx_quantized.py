"""Rewrite of ONNX's 8-bit operators that TVM's importer lacks to float32 between dequantized inputs.

onnxruntime's quantizers write QLinearConv, QLinearMatMul and operators of their own (`QuantFormat.QOperator`)
or ConvInteger and MatMulInteger (`quantize_dynamic`). The first become what `QuantFormat.QDQ` writes, whose
operators `wmsched.relax.int8` computes in eight bits. The sums of the second are float32: exact up to 2^24
and with a relative error of 2^-24 beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from wmsched.relax.importers.onnx_fold import rebuilt

MICROSOFT = "com.microsoft"
COLUMNS, ROWS = (1, -1), (-1, 1)  # shapes of a scale by column, by row

POINTWISE = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}


def written_out(model: Any) -> Any:
    """Return the model with quantized operators rewritten to float32; the model itself if it has none.

    Parameters
    ----------
    model : onnx.ModelProto
        A model with its weights in memory; not changed.

    Notes
    -----
    An operator of unknown form stays, and TVM's importer reports it.
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
    """Return an optional input's name, or ""."""
    return str(node.input[place]) if place < len(node.input) else ""


def _tensor(node: Any, place: int) -> tuple[str, str]:
    """Return the names of a quantized input's zero point ("" if omitted) and of the input."""
    return _input(node, place + 2), node.input[place]


def _channels(writer: Writer, weight: str) -> tuple[int, ...]:
    """Return the shape of a scale by output channel; raise KeyError if the weight's rank is unknown."""
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
    else:  # old opsets: over all axes from `axis` on
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


FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
LAST = (-1,)  # shape of a scale by element of the last axis
PER_AXIS_OPSET = 13  # first in which DequantizeLinear has a scale for each channel


class Writer:
    """Writer of the new graph's nodes, with names that the old graph lacks.

    Parameters
    ----------
    model : onnx.ModelProto
        The old model.

    Attributes
    ----------
    extents, kinds : dict
        Known shapes and element types of the old graph, by name.
    opset : int
        Version of ONNX's own operators.
    """

    def __init__(self, model: Any) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.opset = max((entry.version for entry in model.opset_import if not entry.domain), default=0)
        graph = model.graph
        self.extents = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self.kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info):
            tensor = value.type.tensor_type
            self.kinds.setdefault(value.name, tensor.elem_type)
            if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
                self.extents.setdefault(value.name, tuple(dim.dim_value for dim in tensor.shape.dim))
        for node in graph.node:
            if node.op_type == "DynamicQuantizeLinear":  # its scale and zero point are scalars
                self.extents |= {name: () for name in node.output[1:]}
            elif node.op_type == "Constant" and node.attribute[0].name == "value":
                self.extents[node.output[0]] = tuple(node.attribute[0].t.dims)
                self.kinds[node.output[0]] = node.attribute[0].t.data_type
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}

    def tried(self, write: Callable[[Writer, Any], None], node: Any) -> bool:
        """Try `write` on a node; return whether it succeeded, and undo its nodes if not."""
        nodes, constants = len(self.nodes), len(self.constants)
        try:
            write(self, node)
        except (KeyError, IndexError, TypeError, ValueError):  # a computed shape, or too few inputs
            del self.nodes[nodes:], self.constants[constants:]
            return False
        return True

    def add(self, kind: str, inputs: Iterable[str], output: str = "", **attributes: Any) -> str:
        """Append a node and return its output's name."""
        output = output or self._fresh(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def shaped(self, name: str, shape: tuple[int, ...]) -> str:
        """Return a scale or zero point reshaped to `shape`, or unchanged if it is a scalar.

        Raises
        ------
        KeyError
            Its number of elements is unknown.
        """
        if self.kinds.get(name) == onnx.TensorProto.FLOAT16:  # numbers are float32 here
            extents = self.extents[name]
            name = self.add("Cast", (name,), to=FLOAT)
            self.extents[name] = extents
        if len(self.extents[name]) != 1 or self.extents[name] == (1,):
            return name
        return self.add("Reshape", (name, self.constant(np.array(shape, np.int64))))

    def constant(self, value: Any) -> str:
        """Add an array as a constant and return its name."""
        name = self._fresh("constant")
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def shifted(self, name: str, zero: str, shape: tuple[int, ...] = LAST) -> str:
        """Return integers minus their zero point, as float32."""
        number = self.add("Cast", (name,), to=FLOAT)
        if not zero:
            return number
        return self.add("Sub", (number, self.add("Cast", (self.shaped(zero, shape),), to=FLOAT)))

    def real(self, name: str, scale: str, zero: str, shape: tuple[int, ...] = LAST) -> str:
        """Return a quantized tensor's real value: (number - zero point) * scale."""
        extents = [self.extents[each] for each in (scale, zero) if each]
        if all(extent == () for extent in extents):
            return self.add("DequantizeLinear", (name, scale, zero) if zero else (name, scale))
        several = len(set(extents)) == 1 and len(extents[0]) == 1 and extents[0] != (1,)
        if several and self.opset >= PER_AXIS_OPSET:
            axis = shape.index(-1) - (0 if len(shape) > 2 else len(shape))  # of a product from the end
            inputs = (name, scale, zero) if zero else (name, scale)
            return self.add("DequantizeLinear", inputs, axis=axis)
        return self.add("Mul", (self.shifted(name, zero, shape), self.shaped(scale, shape)))

    def bias(self, name: str, scale: str) -> str:
        """Return an int32 bias's real value; it has no zero point."""
        return self.add("Mul", (self.add("Cast", (name,), to=FLOAT), scale))

    def quantized(self, name: str, scale: str, zero: str, output: str, *, like: Iterable[str]) -> None:
        """Quantize `name` to `output`.

        Without a zero point, `output` gets the type of the first typed name in `like` (an input's zero point,
        the input), because ONNX's default is unsigned.

        Raises
        ------
        IndexError
            No type in `like` is known.
        """
        kinds = [self.kinds[each] for each in (zero, *like) if self.kinds.get(each)]
        if not zero:
            zero = self.constant(np.zeros((), helper.tensor_dtype_to_np_dtype(kinds[0])))
        if self.kinds.get(scale) == onnx.TensorProto.FLOAT16:
            scale = self.add("Cast", (scale,), to=FLOAT)
        self.add("QuantizeLinear", (name, scale, zero), output)
        if kinds:
            self.kinds[output] = kinds[0]

    def _fresh(self, word: str) -> str:
        number = len(self._taken)
        while (name := f"wmsched_{word}_{number}") in self._taken:
            number += 1
        self._taken.add(name)
        return name
