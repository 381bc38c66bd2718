"""Rewrites of torch.export programs that TVM's importer would misread.

Works around TVM 0.27; remove each rewrite when its importer is right. Most errors are silent:

* integers that PyTorch promotes to floats (half of an integer tensor is 0, ``log`` of one fails);
* sums and products of booleans along an axis, and comparisons of booleans, which LLVM cannot compile;
* integers clamped on one side, where the other limit becomes infinity;
* half-precision products, which it types as float32;
* negative indices, which read before the tensor;
* the factor `alpha` of a sum, which it drops.

`shapes` handles constant indices and `accumulate_fp32` other half-precision sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument

from wmsched.relax.importers.aten.decompositions import core, decomposed, fold
from wmsched.relax.importers.aten.importer import is_known
from wmsched.relax.importers.aten.scattering import in_front
from wmsched.relax.importers.torch_loops import part_at_once

COMPARISONS = ("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge")
REDUCTIONS = ("aten::sum", "aten::prod", "aten::cumsum", "aten::cumprod")
CONVERSIONS = ("aten::_to_copy", "aten::to", "aten::type_as")
PRODUCTS = (  # a norm's powers overflow float16 before the norm does
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::linalg_vector_norm"
)  # fmt: skip
QUOTIENTS = ("aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod")
HALF = (torch.float16, torch.bfloat16)
SCALED = ("aten::add", "aten::sub")
JOINED = ("aten::cat", "aten::stack")
CHECKS = (
    "aten::_assert_scalar", "aten::_assert_tensor_metadata", "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
)  # fmt: skip
#: Numbers and truths of data, which are computed for checks.
TRUTHS = ("aten::_local_scalar_dense", "aten::item", "aten::_is_all_true", "aten::_is_any_true")
CONDITIONAL = {"aten::where": 0, "aten::masked_fill": 1}  # index of the condition among the arguments


def normalize(program: Any) -> Any:
    """Return the program in PyTorch's core operators, with explicit types.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Not changed.

    Returns
    -------
    torch.export.ExportedProgram
        Computes the same from its tensor inputs and has no other inputs. A program with sparse tensors is
        returned unchanged, because PyTorch cannot decompose it.
    """
    if any(tensor.layout != torch.strided for tensor in [*program.state_dict.values(), *_constants(program)]):
        return program
    with torch.no_grad():  # a buffer that takes what hangs on parameters would have a gradient
        found = decomposed(core(program), is_known)
        _leave_checks_out(found.graph)
        in_front(found.graph)
        fold(found)
    for node in list(found.graph.nodes):
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            _write_out(node)
    part_at_once(found.graph)
    _take_tensors(found)
    _return_tensors(found)
    found.graph.lint()
    found.graph_module.recompile()
    return found


def _leave_checks_out(graph: Any) -> None:
    """Remove checks of values (`torch._check`), and what is computed for them alone.

    PyTorch leaves out a check that holds for the example, and keeps what was computed for it.
    """
    for_checks: set[Any] = set()
    for node in reversed(list(graph.nodes)):
        schema = getattr(node.target, "_schema", None)
        is_check = schema is not None and (schema.name in CHECKS or schema.name in TRUTHS)
        if node.op == "call_function" and not node.users and (is_check or node in for_checks):
            for_checks.update(node.all_input_nodes)
            graph.erase_node(node)


def _constants(program: Any) -> list[torch.Tensor]:
    return [each for each in program.constants.values() if isinstance(each, torch.Tensor)]


def _take_tensors(program: Any) -> None:
    """Remove inputs that are no tensors: None and numbers are constants of the program already."""
    specs = program.graph_signature.input_specs
    unread = {node.name: node for node in program.graph.nodes if node.op == "placeholder" and not node.users}
    for spec in list(specs):
        if isinstance(spec.arg, ConstantArgument) and spec.arg.name in unread:
            program.graph.erase_node(unread[spec.arg.name])
            specs.remove(spec)


def _return_tensors(program: Any) -> None:
    """Remove outputs that are no tensors, which no library can return (`Model.returns` keeps them)."""
    specs = program.graph_signature.output_specs
    node = next(node for node in program.graph.nodes if node.op == "output")
    kept = [(each, spec) for each, spec in zip(node.args[0], specs) if isinstance(each, torch.fx.Node)]
    if len(kept) < len(specs):
        node.args = (tuple(each for each, _ in kept),)
        specs[:] = [spec for _, spec in kept]


def _write_out(node: Any) -> None:
    name, value = node.target._schema.name, node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.is_complex():
        return
    if name in SCALED:
        _scale(node)
    if name == "aten::index":
        _from_the_front(node)
    if name in REDUCTIONS:
        node.update_arg(0, _cast(node, node.args[0], value.dtype))
    elif name in PRODUCTS and value.dtype in HALF:
        _cast_all(node, torch.float32)
        _narrow(node, value)
    elif name in JOINED:
        parts = node.args[0]
        if name == "aten::cat" and value.dim() > 1:  # empty tensors of one axis go with any others
            parts = [each for each in parts if each.meta["val"].dim() > 1]
        node.update_arg(0, [_cast(node, each, value.dtype) for each in parts])
    elif name in COMPARISONS:
        _cast_all(node, _compared(node.args))
    elif name == "aten::clamp" and not value.dtype.is_floating_point:
        _limit(node, value)
    elif torch.Tag.pointwise in node.target.tags and name not in CONVERSIONS and value.dtype != torch.bool:
        _cast_all(node, value.dtype, but=CONDITIONAL.get(name))
        if name in QUOTIENTS and isinstance(node.args[1], int):
            node.update_arg(1, _number(node, node.args[1], value.dtype))


def _scale(node: Any) -> None:
    """Multiply the second operand by its factor `alpha`, which TVM does not read."""
    factor = node.kwargs.get("alpha", 1)
    node.kwargs = {name: value for name, value in node.kwargs.items() if name != "alpha"}
    if factor == 1:
        return
    operand = node.args[1]
    if isinstance(operand, torch.fx.Node):
        with node.graph.inserting_before(node):
            scaled = node.graph.call_function(torch.ops.aten.mul.Tensor, (operand, factor))
        scaled.meta["val"] = operand.meta["val"]
        node.update_arg(1, scaled)
    else:
        node.update_arg(1, operand * factor)


def _from_the_front(node: Any) -> None:
    """Make negative indices non-negative."""
    source, indices = node.args[0].meta["val"], list(node.args[1])
    if len(indices) > source.dim() or any(_dtype(index) is torch.bool for index in indices):
        return  # a mask indexes several axes, which TVM lacks
    for place, (index, extent) in enumerate(zip(indices, source.shape)):
        dtype = _dtype(index)
        if dtype is None or dtype is torch.uint8 or not isinstance(extent, int):
            continue
        value = index.meta["val"]
        with node.graph.inserting_before(node):
            below = node.graph.call_function(torch.ops.aten.lt.Scalar, (index, 0))
            moved = node.graph.call_function(torch.ops.aten.add.Tensor, (index, extent))
            found = node.graph.call_function(torch.ops.aten.where.self, (below, moved, index))
        below.meta["val"], moved.meta["val"], found.meta["val"] = value.to(torch.bool), value, value
        indices[place] = found
    node.update_arg(1, indices)


def _dtype(argument: Any) -> torch.dtype | None:
    """Return the type of a tensor argument; None for anything else."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _compared(arguments: Any) -> torch.dtype:
    """Return the type in which PyTorch compares two arguments; for booleans one that LLVM supports."""
    common = torch.result_type(*(getattr(each, "meta", {}).get("val", each) for each in arguments[:2]))
    return torch.uint8 if common == torch.bool else common


def _cast_all(node: Any, dtype: torch.dtype, *, but: int | None = None) -> None:
    for place, argument in enumerate(node.args):
        if place != but:
            node.update_arg(place, _cast(node, argument, dtype))


def _narrow(node: Any, value: Any) -> None:
    """Make a node compute in float32, and cast its result to the type of `value`."""
    with node.graph.inserting_after(node):
        back = node.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": value.dtype})
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
    back.meta["val"], node.meta["val"] = value, value.to(torch.float32)


def _limit(node: Any, value: Any) -> None:
    """Replace an integer clamp by ``maximum`` and ``minimum``, each only if it has that limit."""
    _cast_all(node, value.dtype)
    limited, *given = node.args
    limits = dict(zip(("min", "max"), given)) | dict(node.kwargs)
    operators = {"min": torch.ops.aten.maximum.default, "max": torch.ops.aten.minimum.default}
    for side, operator in operators.items():
        limit = limits.get(side)
        if limit is None:
            continue
        operand = limit if isinstance(limit, torch.fx.Node) else _number(node, limit, value.dtype)
        with node.graph.inserting_before(node):
            limited = node.graph.call_function(operator, (limited, operand))
        limited.meta["val"] = value
    node.replace_all_uses_with(limited)
    node.graph.erase_node(node)


def _number(node: Any, number: int, dtype: torch.dtype) -> Any:
    """Return a number in the type of the computation; TVM would take a divisor as a 32-bit integer."""
    if dtype.is_floating_point:
        return float(number)
    with node.graph.inserting_before(node):
        tensor = node.graph.call_function(torch.ops.aten.full.default, ([], number), {"dtype": dtype})
    tensor.meta["val"] = node.meta["val"].new_full((), number)
    return tensor


def _cast(node: Any, argument: Any, dtype: torch.dtype) -> Any:
    """Return the node's argument cast to `dtype` if it is a tensor."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.dtype == dtype:
        return argument
    with node.graph.inserting_before(node):
        cast = node.graph.call_function(torch.ops.aten._to_copy.default, (argument,), {"dtype": dtype})
    cast.meta["val"] = value.to(dtype)
    return cast
