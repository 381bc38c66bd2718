"""TVM's converters of ONNX operators, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.relax.frontend.onnx import onnx_frontend

from wmsched.relax.importers.operators.node import Node

STOCK: dict[str, Any] = onnx_frontend._get_convert_map()


def stock(name: str) -> Callable[[Node], Any]:
    """Return TVM's converter of an operator."""

    def convert(node: Node) -> Any:
        convert_stock = STOCK[name].get_converter(node.opset)
        more = {"name": node.kind, "num_outputs": len(node.outputs)}
        return convert_stock(node.builder, node.inputs, node.attributes | {"tvm_custom": more}, node.params)

    return convert
