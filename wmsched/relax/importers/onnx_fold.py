"""Constant folding of ONNX models, because TVM's importer needs constant shapes and pads.

PyTorch's older exporter computes a reshape's shape, a pad's widths and a mask from the shapes of tensors. If
these are known, ONNX's reference implementation evaluates the operations. An ``If`` on them is replaced by
the branch taken.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from wmsched.relax.importers.shapes import Shapes

logger = logging.getLogger("wmsched")

MAX_ELEMENTS = 1 << 16  # of an evaluated node's inputs and outputs; excludes weights
MAX_ROUNDS = 8  # of inference and evaluation; each may find a shape for the next
RANDOM = (  # operators that are or may be random
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
    "Dropout",
)  # fmt: skip


def open_extents(model: Any) -> None:
    """Name each extent of a model's inputs that is no positive number.

    Works around apache-tvm 0.27, which takes unnamed extents as equal and -1 as a number; remove when it
    does not.
    """
    for place, value in enumerate(model.graph.input):
        for axis, extent in enumerate(value.type.tensor_type.shape.dim):
            if extent.dim_value < 1 and not extent.dim_param:
                extent.dim_param = f"open{place}_{axis}"


def ranks_of(model: Any) -> dict[str, int | None]:
    """Return the ranks of a model's inputs by name, in order; None if unknown."""
    weights = {tensor.name for tensor in model.graph.initializer}
    tensors = {value.name: value.type.tensor_type for value in model.graph.input if value.name not in weights}
    return {
        name: len(tensor.shape.dim) if tensor.HasField("shape") else None for name, tensor in tensors.items()
    }


def folded(model: Any, shapes: Shapes) -> Any:
    """Return the model without operations on constants and known shapes; the model itself if that fails.

    Parameters
    ----------
    model : onnx.ModelProto
        A model with its weights in memory; not changed.
    shapes : mapping of input name to shape
        Replacements of the model's shapes.
    """
    try:
        return _folded(model, shapes)
    except Exception as error:  # ONNX's inference does not support the model
        logger.info("the shapes of the ONNX model stay as they are: %s", error)
        return model


def _folded(model: Any, shapes: Shapes) -> Any:
    graph = model.graph
    known = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if math.prod(tensor.dims) <= MAX_ELEMENTS
    }
    weights = [tensor for tensor in graph.initializer if tensor.name not in known]
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    nodes = given = list(graph.node)
    inputs = _inputs(graph, shapes, weights)
    for _ in range(MAX_ROUNDS):
        extents = _extents(rebuilt(model, nodes, _tensors(known), inputs))
        left = _left(nodes, known, extents, opsets)
        if left is None:
            break
        nodes = left
    if nodes is given:
        return model
    used = names_read(nodes).union(value.name for value in graph.output)  # an output may be a constant
    constants = _tensors({name: value for name, value in known.items() if name in used})
    kept = {tensor.name for tensor in (*weights, *constants)}
    weighing = {tensor.name for tensor in graph.initializer}  # older files list weights as inputs too
    given_inputs = [value for value in graph.input if value.name in kept or value.name not in weighing]
    return rebuilt(model, nodes, [*weights, *constants], given_inputs)


def with_types(model: Any) -> Any:
    """Return the model with the types and shapes that ONNX infers; the model itself if that fails."""
    try:
        graph = model.graph
        weights = [tensor for tensor in graph.initializer if math.prod(tensor.dims) > MAX_ELEMENTS]
        names = {tensor.name for tensor in weights}
        small = [tensor for tensor in graph.initializer if tensor.name not in names]
        inferred = onnx.shape_inference.infer_shapes(
            rebuilt(model, list(graph.node), small, _inputs(graph, {}, weights)), data_prop=True
        )
    except Exception as error:  # a model that it does not know; no common base
        logger.info("the types of the ONNX model are not inferred: %s", error)
        return model
    made = rebuilt(model, list(graph.node), list(graph.initializer), list(graph.input))
    made.graph.value_info.extend(inferred.graph.value_info)
    return made


def facts(model: Any) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return the small constants of a model and the shapes that are known, by name."""
    graph = model.graph
    known = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if math.prod(tensor.dims) <= MAX_ELEMENTS
    }
    if not any(node.op_type in ("Loop", "Scan") for node in graph.node):
        return known, {}
    typed = with_types(model).graph
    found = {tensor.name: tuple(int(n) for n in tensor.dims) for tensor in graph.initializer}
    for value in [*typed.input, *typed.value_info]:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            found[value.name] = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    return known, found


def _left(
    nodes: list[Any],
    known: dict[str, Any],
    extents: Mapping[str, tuple[int, ...]],
    opsets: Mapping[str, int],
) -> list[Any] | None:
    """Return the nodes that remain, and add evaluated values to `known`; None if all remain."""
    left: list[Any] = []
    changed = False
    for node in nodes:
        found = _evaluate(node, known, extents, opsets)
        if found is not None:
            known |= found
            instead: list[Any] | None = []
        else:
            instead = _branch(node, known)
        left += [node] if instead is None else instead
        changed |= instead is not None
    return left if changed else None


def _branch(node: Any, known: Mapping[str, Any]) -> list[Any] | None:
    """Return the nodes of the branch that an ``If`` takes; None for other nodes or an unknown condition."""
    if node.domain or node.op_type != "If" or node.input[0] not in known:
        return None
    return branch_taken(node, bool(known[node.input[0]].all()))


def _tensors(arrays: Mapping[str, Any]) -> list[Any]:
    return [numpy_helper.from_array(value, name) for name, value in arrays.items()]


def rebuilt(model: Any, nodes: list[Any], constants: list[Any], inputs: list[Any]) -> Any:
    """Return a model of new nodes and constants, with the outputs and operator sets of `model`."""
    made = onnx.ModelProto()
    made.ir_version = model.ir_version
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    made.graph.name = model.graph.name
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(constants)
    made.graph.input.extend(inputs)
    made.graph.output.extend(model.graph.output)
    return made


def _inputs(graph: Any, shapes: Shapes, weights: list[Any]) -> list[Any]:
    """Return the graph's inputs with the given shapes, and its weights, for shape inference."""
    given = {value.name for value in graph.input}
    inputs = []
    for value in graph.input:
        if value.name in shapes:
            kind = value.type.tensor_type.elem_type
            value = onnx.helper.make_tensor_value_info(value.name, kind, shapes[value.name])
        inputs.append(value)
    return inputs + [
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in weights
        if tensor.name not in given
    ]


def _extents(model: Any) -> dict[str, tuple[int, ...]]:
    """Return the static shapes that ONNX's inference finds, by tensor."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    found = {}
    for value in [*inferred.graph.input, *inferred.graph.value_info]:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            found[value.name] = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    return found


def _evaluate(
    node: Any, known: Mapping[str, Any], extents: Mapping[str, tuple[int, ...]], opsets: Mapping[str, int]
) -> dict[str, Any] | None:
    """Return a node's outputs by name; None if unknown or large."""
    given = [name for name in node.input if name]
    if node.domain or node.op_type in RANDOM or any(True for _ in graphs_in(node)):
        return None
    if node.op_type == "DequantizeLinear" and getattr(known.get(node.input[0]), "ndim", 0) > 1:
        return None  # weights stay in eight bits
    if node.op_type in ("Shape", "Size") and given[0] in extents:
        # a broadcast view of one number: only the shape is needed
        feeds = {given[0]: np.broadcast_to(np.float32(0), extents[given[0]])}
    elif all(name in known for name in given):
        feeds = {name: known[name] for name in given}
    else:
        return None
    if any(math.prod(extents[name]) > MAX_ELEMENTS for name in node.output if name in extents):
        return None
    try:
        found = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, feeds)
    except Exception as error:  # the reference lacks operators and fails on some
        logger.info("%s of an ONNX model stays as it is: %s", node.op_type, error)
        return None
    if not all(isinstance(value, (np.ndarray, np.generic)) for value in found):  # a sequence, an optional
        return None
    values = {name: np.asarray(value) for name, value in zip(node.output, found) if name}
    return values if all(value.size <= MAX_ELEMENTS for value in values.values()) else None


GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def names_read(nodes: Iterable[Any]) -> set[str]:
    """Return the names that nodes read, including outer names in their branches and loops."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for graph in graphs_in(node):
            found |= names_read(graph.node) | {value.name for value in graph.output}
    return found


def graphs_in(node: Any) -> Iterator[Any]:
    """Yield a node's branches or loop body."""
    for attribute in node.attribute:
        if attribute.type in GRAPHS:
            yield from [attribute.g] if attribute.type == GRAPHS[0] else attribute.graphs


def branch_taken(node: Any, condition: bool) -> list[Any] | None:
    """Return the nodes that replace an ``If`` of a known condition; None if the branch has branches.

    The branch's names get a prefix, because the other branch may use the same.
    """
    wanted = "then_branch" if condition else "else_branch"
    graph = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    if any(True for inner in graph.node for _ in graphs_in(inner)):
        return None
    own = {tensor.name for tensor in graph.initializer}.union(*(inner.output for inner in graph.node)) - {""}
    names = {name: f"wmsched/{node.output[0]}/{name}" for name in own}
    nodes = [
        helper.make_node("Constant", [], [names[tensor.name]], value=tensor) for tensor in graph.initializer
    ]
    for inner in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        for old, new in ((inner.input, copy.input), (inner.output, copy.output)):
            del new[:]
            new.extend(names.get(name, name) for name in old)
        nodes.append(copy)
    for value, output in zip(graph.output, node.output):
        if output:
            nodes.append(helper.make_node("Identity", [names.get(value.name, value.name)], [output]))
    return nodes
