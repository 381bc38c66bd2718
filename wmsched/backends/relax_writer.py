"""New nodes of an ONNX graph, which compute of quantized tensors what they stand for, in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

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
