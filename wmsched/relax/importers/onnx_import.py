"""Import of an ONNX model in memory into Relax: rewrites, then a converter for each operator.

Shapes are numbers here. What TVM's importer cannot do, or does wrong, is in `operators`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from wmsched.base.errors import WmschedError
from wmsched.relax.importers import onnx_fold, onnx_rewrites
from wmsched.relax.importers.onnx_loops import Unrolled
from wmsched.relax.importers.onnx_quantized import WRITERS, written_out
from wmsched.relax.importers.operators.node import TYPES, Node, Refused
from wmsched.relax.importers.operators.table import REFUSED, converter
from wmsched.relax.importers.shapes import Shapes, short
from wmsched.relax.passes.accumulate_fp32 import wide_sums
from wmsched.relax.passes.split_to_slices import cut_apart

MAX_ROUNDS = 8  # of bodies and loops: each may show more


def imported(model: Any, shapes: Shapes) -> Any:
    """Return a model as a Relax module with the function ``main``.

    Parameters
    ----------
    model : onnx.ModelProto
        With its weights in memory; not changed.
    shapes : mapping of input name to shape
        Replacements of the model's shapes.

    Raises
    ------
    Refused
        An operator is not supported in its form: the message names it.
    """
    model = onnx_rewrites.with_shapes(model, shapes)
    _check_inputs(model)
    before = {node.op_type for node in onnx_rewrites.all_nodes(model.graph)}
    check_values(model)
    simple, bodies = simplified(model)
    return module_of(simple, bodies, before)


def module_of(
    simple: Any, bodies: Sequence[str] = (), before: set[str] | frozenset[str] = frozenset()
) -> Any:
    """Return the Relax module of a simplified model.

    Parameters
    ----------
    bodies : sequence of str
        Operators that it has the bodies of.
    before : set of str
        Operators that the model had.
    """
    importer = Importer(_given_shapes(simple), "float32")
    importer.bodies, importer.own = bodies, before
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it cannot convert
        module = importer.from_onnx(simple.graph, onnx_rewrites.opset_of(simple))
    return cut_apart(wide_sums(module))


def _given_shapes(model: Any) -> dict[str, list[int]]:
    """Return the inputs' shapes: TVM's importer takes an extent of 0 for a symbol."""
    return {
        value.name: [int(extent.dim_value) for extent in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }


def _check_inputs(model: Any) -> None:
    """Refuse open extents, with the option that closes them."""
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name in weights or not value.type.HasField("tensor_type"):
            continue
        if not tensor.HasField("shape"):
            raise WmschedError(
                f"its input {value.name} is no tensor of known rank: give its shape, for example "
                f"--shape {value.name}=1,3,224,224, or export it again without that one"
            )
        extents = tensor.shape.dim
        if any(extent.dim_param for extent in extents):
            names = ",".join(extent.dim_param or str(extent.dim_value) for extent in extents)
            example = ",".join("1" if extent.dim_param else str(extent.dim_value) for extent in extents)
            raise WmschedError(
                f"its input {value.name} has the shape {names}, and a program is tuned for numbers: give "
                f"them, for example --shape {value.name}={example}"
            )


def check_values(model: Any) -> None:
    """Refuse inputs, outputs and weights that are no tensors of numbers, and name who reads or makes them."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        if not value.type.HasField("tensor_type"):
            what = (value.type.WhichOneof("value") or "value").removesuffix("_type")
            article = "an" if what[0] in "aeiou" else "a"
            raise Refused(
                f"{_user(graph, value.name)}: {value.name} is {article} {what}, and programs have tensors"
            )
        _check_type(graph, value.name, value.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        _check_type(graph, tensor.name, tensor.data_type)


def _check_type(graph: Any, name: str, kind: int) -> None:
    word = TensorProto.DataType.Name(kind)
    if kind in (0, TensorProto.STRING) or str(helper.tensor_dtype_to_np_dtype(kind)) not in TYPES:
        raise Refused(f"{_user(graph, name)}: {name} has elements of the type {word}, which is not supported")


def _user(graph: Any, name: str) -> str:
    """Return the operator that makes or reads a value."""
    for node in onnx_rewrites.all_nodes(graph):
        if name in node.output or name in node.input:
            return str(node.op_type)
    return str(graph.node[0].op_type) if graph.node else "the model"


def simplified(model: Any) -> tuple[Any, list[str]]:
    """Return a model that the importer takes, and the operators that it has the bodies of."""
    model = onnx_rewrites.upgraded(onnx_rewrites.without_local_functions(model))
    bodies: list[str] = []
    for _ in range(MAX_ROUNDS):
        model = onnx_fold.folded(written_out(onnx_fold.with_types(model)), {})
        unrolled = Unrolled(model, *onnx_fold.facts(model))
        model, more = onnx_rewrites.expanded(unrolled.result(), _lacks)
        bodies += more
        if not more and not unrolled.changed:
            break
    return model, bodies


def _lacks(domain: str, name: str) -> bool:
    return name not in REFUSED and (domain, name) not in WRITERS and isinstance(converter(domain, name), str)


class Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer with the table's converters, and errors that name the operator."""

    _nodes: dict[str, Any]
    bodies: Sequence[str] = ()
    own: frozenset[str] | set[str] = frozenset()

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        for node in onnx_rewrites.all_nodes(graph):
            found = converter(node.domain, node.op_type)
            if isinstance(found, str) and node.op_type not in ("If", "Constant"):
                raise Refused(self._named(node.op_type, found))

    def _named(self, kind: str, why: str) -> str:
        """Return a refusal; of an operator that the model has not itself, with the one it is a part of."""
        within = (
            f" (it is a part of {', '.join(self.bodies)})" if self.bodies and kind not in self.own else ""
        )
        return f"{kind}: {why}{within}"

    def _construct_nodes(self, graph: Any) -> None:
        for node in graph.node:
            self._construct(node)

    def _construct(self, node: Any) -> None:
        try:
            self._converted(node)
        except Refused as error:
            raise Refused(self._named(node.op_type, str(error).removeprefix(f"{node.op_type}: "))) from error
        except Exception as error:  # of TVM's converters; no common base
            raise Refused(
                self._named(node.op_type, f"its importer does not take this form ({short(error)})")
            ) from error

    def _converted(self, node: Any) -> None:
        inputs = onnx_frontend.onnx_input()
        for name in node.input:
            inputs.append(self._nodes[name] if name else None)
        if node.op_type == "If":
            self._branch(node, inputs)
            return
        if node.op_type == "Constant":
            self._nodes[node.output[0]] = _constant(node)
            return
        for value in inputs:
            self._check(node, value)
        found = self._table(node, inputs)
        values = list(found) if isinstance(found, (list, tuple)) else self._parts(node, found)
        if len(values) < sum(map(bool, node.output)) or any(
            name and k >= len(values) for k, name in enumerate(node.output)
        ):
            raise Refused(
                f"{node.op_type}: it has {len(values)} outputs here, and {len(node.output)} are read"
            )
        for name, value in zip(node.output, values):
            if name:
                self._nodes[name] = self.bb.normalize(value)

    def _table(self, node: Any, inputs: Any) -> Any:
        convert = converter(node.domain, node.op_type)
        if isinstance(convert, str):
            raise Refused(f"{node.op_type}: {convert}")
        attributes = self._parse_attr(node.attribute)
        params = [self._nodes, self._params]
        return convert(Node(node.op_type, self.bb, inputs, attributes, self.opset, node.output, params))

    def _check(self, node: Any, value: Any) -> None:
        kind = getattr(value, "ty", None)
        if isinstance(kind, relax.ShapeType):
            raise Refused(f"{node.op_type}: it reads a shape that hangs on data")
        if isinstance(kind, relax.TensorType) and str(kind.dtype) not in TYPES:
            raise Refused(f"{node.op_type}: elements of the type {kind.dtype} are not supported")

    def _parts(self, node: Any, found: Any) -> list[Any]:
        """Return the outputs of a converter's expression; sequences stay whole."""
        found = self.bb.normalize(found) if isinstance(found, relax.Expr) else found
        if "Sequence" in node.op_type or "Optional" in node.op_type:
            return [found]
        if isinstance(found, relax.Tuple):
            return list(found.fields)
        if isinstance(found.ty, relax.TupleType):
            return [self.bb.emit(relax.TupleGetItem(found, k)) for k in range(len(found.ty.fields))]
        return [found]

    def _branch(self, node: Any, inputs: Any) -> None:
        graphs = {attribute.name: attribute.g for attribute in node.attribute}
        then, other = (
            relax.SeqExpr(blocks=[], body=self._convert_subgraph(self.bb, graphs[f"{word}_branch"]))
            for word in ("then", "else")
        )
        found = self.bb.emit(relax.If(inputs[0], then, other))
        for value, name in zip(self._parts(node, found), node.output):
            self._nodes[name] = value

    def _convert_subgraph(self, bb: Any, graph: Any) -> Any:
        outer = dict(self._nodes)
        try:
            for tensor in graph.initializer:
                self._nodes[tensor.name] = relax.const(self._parse_array(tensor))
            self._construct_nodes(graph)
            found = [self._nodes[value.name] for value in graph.output]
            return found[0] if len(found) == 1 else relax.Tuple(found)
        finally:
            self._nodes = outer


def _constant(node: Any) -> Any:
    """Return the value of a Constant node, in any of its forms."""
    import numpy as np

    (attribute,) = node.attribute
    if attribute.name == "value":
        array = numpy_helper.to_array(attribute.t)
    elif attribute.name in ("value_int", "value_ints"):
        array = np.asarray(helper.get_attribute_value(attribute), np.int64)
    elif attribute.name in ("value_float", "value_floats"):
        array = np.asarray(helper.get_attribute_value(attribute), np.float32)
    else:
        raise Refused(f"Constant: {attribute.name} is not supported")
    if str(array.dtype) not in TYPES:
        raise Refused(f"Constant: elements of the type {array.dtype} are not supported")
    return relax.const(array)
