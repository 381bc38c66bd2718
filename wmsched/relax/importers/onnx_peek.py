"""Outputs of the operators inside an ONNX graph, as programs here compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from wmsched.relax.importers.onnx_import import module_of, simplified
from wmsched.relax.importers.onnx_rewrites import with_shapes
from wmsched.relax.importers.shapes import Shapes
from wmsched.relax.passes import pipeline


def peeked(model: Any, shapes: Shapes, most: int) -> tuple[Any, list[str], dict[str, str]]:
    """Return a model whose outputs are those of its operators, their names in order, and the operators.

    Operators that were folded away or replaced by others are left out.
    """
    own = {name: node.op_type for node in model.graph.node for name in node.output if name}
    simple, _ = simplified(with_shapes(model, shapes))
    names = [name for node in simple.graph.node for name in node.output if name in own][:most]
    made = onnx.ModelProto()
    made.CopyFrom(simple)
    del made.graph.output[:]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return made, names, own


def outputs_of(model: Any, names: Sequence[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of one run of a simplified model on this processor."""
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    module = module_of(model)
    made = pipeline.compile_module(pipeline.prepare(module, target), target)
    main = relax.VirtualMachine(made, tvm.cpu())["main"]
    weights = {tensor.name for tensor in model.graph.initializer}
    given = [arrays[value.name] for value in model.graph.input if value.name not in weights]
    found = main(*[tvm.runtime.tensor(np.require(one, requirements="C")) for one in given])
    values = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
    return {name: value.numpy() for name, value in zip(names, values)}
