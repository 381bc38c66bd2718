"""Rewrites of ONNX graphs before their import: old operator sets, functions, bodies.

An operator that no converter takes, and that the standard defines by a body of other operators, is replaced
by that body.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, inliner, version_converter

from wmsched.base.errors import WmschedError
from wmsched.relax.importers.onnx_fold import MAX_ELEMENTS, graphs_in
from wmsched.relax.importers.shapes import Shapes

logger = logging.getLogger("wmsched")

OLDEST = 11  # TVM's converters and ours follow operator sets from here on
CONVERTED = 13  # to which older ones are converted
OWN = ("", "ai.onnx")  # ONNX's own domain


def with_shapes(model: Any, shapes: Shapes) -> Any:
    """Return the model with numbers for its inputs' extents; a symbol gets its number everywhere."""
    if not shapes:
        return model
    symbols: dict[str, int] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name in shapes and tensor.HasField("shape"):
            for extent, number in zip(tensor.shape.dim, shapes[value.name]):
                if extent.dim_param:
                    symbols[extent.dim_param] = int(number)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.value_info[:]  # of other shapes; they are inferred anew
    for value in made.graph.input:
        tensor = value.type.tensor_type
        if value.name in shapes:
            value.CopyFrom(
                helper.make_tensor_value_info(value.name, tensor.elem_type, list(shapes[value.name]))
            )
        elif tensor.HasField("shape"):
            _bind(tensor.shape.dim, symbols)
    return made


def _bind(extents: Any, symbols: Mapping[str, int]) -> None:
    for extent in extents:
        if extent.dim_param in symbols:
            extent.dim_value = symbols[extent.dim_param]


def lightly(model: Any, rewrite: Callable[[Any], Any]) -> Any:
    """Return what `rewrite` makes of a model without its large weights, and put these back."""
    heavy = [tensor for tensor in model.graph.initializer if int(np.prod(tensor.dims)) > MAX_ELEMENTS]
    if not heavy:
        return rewrite(model)
    names = {tensor.name for tensor in heavy}
    light = onnx.ModelProto()
    light.ir_version, light.producer_name = model.ir_version, model.producer_name
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.output.extend(model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in names)
    given = {value.name for value in model.graph.input}
    graph.input.extend(model.graph.input)
    graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in heavy
        if tensor.name not in given
    )
    made = rewrite(light)
    kept = [value for value in made.graph.input if value.name in given or value.name not in names]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(heavy)
    return made


def opset_of(model: Any) -> int:
    """Return the version of ONNX's own operators in a model."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain in OWN), 1)


def without_local_functions(model: Any) -> Any:
    """Return the model with the bodies of its own functions in place of their calls."""
    if not model.functions:
        return model
    return lightly(model, lambda light: inliner.inline_local_functions(light, True))


def upgraded(model: Any) -> Any:
    """Return a model of an old operator set in a newer one; the model itself if ONNX cannot convert it."""
    if opset_of(model) < 9 and any(node.op_type == "Scan" for node in model.graph.node):
        raise WmschedError("Scan: its form of opset 8, which has batches, is not supported")
    if opset_of(model) >= OLDEST or not any(node.domain in OWN for node in model.graph.node):
        return model
    try:
        return lightly(model, lambda light: version_converter.convert_version(light, CONVERTED))
    except Exception as error:  # it has no converter of an operator's old form; no common base
        logger.info("the operators stay of opset %d: %s", opset_of(model), str(error).strip()[-200:])
        return model


def all_nodes(graph: Any) -> Iterable[Any]:
    """Yield the nodes of a graph and of its branches and bodies."""
    for node in graph.node:
        yield node
        for inner in graphs_in(node):
            yield from all_nodes(inner)


def body_of(node: Any, opset: int, kinds: Mapping[str, Any]) -> Any:
    """Return the function by which the standard defines an operator; None where it has none.

    Parameters
    ----------
    opset : int
        Of the operator's domain.
    kinds : mapping of str to onnx.TypeProto
        Types of the values that the node reads.
    """
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, "" if node.domain in OWN else node.domain)
    except onnx.defs.SchemaError:
        return None
    plain, dependent = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    for versions, of_types in ((plain, False), (dependent, True)):
        if not versions:
            continue
        version = max((one for one in versions if one <= opset), default=min(versions))
        if of_types:
            types = [kinds.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
            found = schema.get_context_dependent_function_with_opset_version(
                version, _with_defaults(node, schema).SerializeToString(), types
            )
        else:
            found = schema.get_function_with_opset_version(version)
        if found:
            function = onnx.FunctionProto()
            function.ParseFromString(found)
            return function
    return None


def _with_defaults(node: Any, schema: Any) -> Any:
    """Return a node with the attributes that it leaves out."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    given = {attribute.name for attribute in node.attribute}
    made.attribute.extend(
        attribute.default_value
        for name, attribute in schema.attributes.items()
        if name not in given and attribute.default_value.name
    )
    return made


def expanded(model: Any, lacks: Callable[[str, str], bool]) -> tuple[Any, list[str]]:
    """Return the model with bodies for the operators that have no converter, and their names.

    Parameters
    ----------
    lacks : callable (domain, name) -> bool
        Whether an operator needs its body.
    """
    if not any(lacks(node.domain, node.op_type) for node in model.graph.node):
        return model, []
    from wmsched.relax.importers.onnx_fold import rebuilt, with_types

    versions = {entry.domain: int(entry.version) for entry in model.opset_import}
    graph = with_types(model).graph
    kinds = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        kinds[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    nodes, names = [], []
    for place, node in enumerate(model.graph.node):
        body = None
        if lacks(node.domain, node.op_type):
            body = body_of(node, versions.get(node.domain, opset_of(model)), kinds)
        if body is None:
            nodes.append(node)
        else:
            names.append(node.op_type)
            nodes += _of_body(node, body, f"wmsched/{node.op_type}{place}_{node.output[0]}")
    if not names:
        return model, []
    graph = model.graph
    return rebuilt(model, nodes, list(graph.initializer), list(graph.input)), names


def _of_body(node: Any, body: Any, prefix: str) -> list[Any]:
    """Return a function's nodes in place of its call."""
    schema = onnx.defs.get_schema(node.op_type, domain="" if node.domain in OWN else node.domain)
    attributes = {entry.name: entry for entry in _with_defaults(node, schema).attribute}
    names = {name: node.input[k] if k < len(node.input) else "" for k, name in enumerate(body.input)}
    made = set().union(*(inner.output for inner in body.node)) - {""} - set(names)
    names |= {name: f"{prefix}/{name}" for name in made}
    for k, name in enumerate(body.output):
        if k < len(node.output) and node.output[k]:
            names[name] = node.output[k]
    nodes = [renamed(inner, names) for inner in body.node]
    for inner in nodes:
        _refer(inner, attributes)
    return nodes


def _refer(node: Any, attributes: Mapping[str, Any]) -> None:
    """Give a function's node the attributes of the call that it refers to."""
    left = []
    for entry in node.attribute:
        if entry.ref_attr_name:
            if entry.ref_attr_name in attributes:
                copy = onnx.AttributeProto()
                copy.CopyFrom(attributes[entry.ref_attr_name])
                copy.name = entry.name
                left.append(copy)
            continue
        for graph in [entry.g] if entry.HasField("g") else entry.graphs:
            for inner in graph.node:
                _refer(inner, attributes)
        left.append(entry)
    kept = [onnx.AttributeProto.FromString(entry.SerializeToString()) for entry in left]
    del node.attribute[:]
    node.attribute.extend(kept)


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for values in (copy.input, copy.output):
        changed = [names.get(name, name) for name in values]
        del values[:]
        values.extend(changed)
    for attribute in copy.attribute:
        for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            _rename_graph(inner, names)
    return copy


def _rename_graph(graph: Any, names: Mapping[str, str]) -> None:
    own = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    own = own.union(*(node.output for node in graph.node))
    outer = {name: new for name, new in names.items() if name not in own}
    nodes = [renamed(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)
