"""torch.export programs in a form that TVM's importer takes as PyTorch means them.

What TVM 0.27 gets wrong of programs as they are, most of it without a word: a whole number where PyTorch
promotes it (half of an integer tensor is 0, ``log`` of one is an error), sums and products of truths along an
axis, and truths compared with each other, which LLVM cannot compile; whole numbers with one limit, the other
of which it takes for infinity; and it takes products of half precision for float32, as it then makes them
here. Indices from the end are read from before the tensor, and the factor of a sum (`alpha`) is left out.
Here all of it is written out. (Constant indices and other sums of half precision, which it gets wrong too,
are for `relax_shapes` and `relax_half`.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument

from wmsched.relax.importers.torch_loops import part_at_once

COMPARISONS = ("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge")
REDUCTIONS = ("aten::sum", "aten::prod", "aten::cumsum", "aten::cumprod")
CONVERSIONS = ("aten::_to_copy", "aten::to", "aten::type_as")
PRODUCTS = (  # a norm's powers are beyond float16 sooner than the norm
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::linalg_vector_norm"
)  # fmt: skip
QUOTIENTS = ("aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod")
HALF = (torch.float16, torch.bfloat16)
SCALED = ("aten::add", "aten::sub")
JOINED = ("aten::cat", "aten::stack")
CONDITIONAL = {"aten::where": 0, "aten::masked_fill": 1}  # the place of the argument that is no number


def normalize(program: Any) -> Any:
    """The program in PyTorch's core operators, its types written out.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        It stays as it is.

    Returns
    -------
    torch.export.ExportedProgram
        Computes the same of the inputs that are tensors, and has no others. One with sparse tensors comes
        back as it is: PyTorch cannot decompose them.
    """
    if any(tensor.layout != torch.strided for tensor in [*program.state_dict.values(), *_constants(program)]):
        return program
    found = program.run_decompositions()
    for node in list(found.graph.nodes):
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            _write_out(node)
    part_at_once(found.graph)
    _take_tensors(found)
    _return_tensors(found)
    found.graph.lint()
    found.graph_module.recompile()
    return found


def _constants(program: Any) -> list[torch.Tensor]:
    return [each for each in program.constants.values() if isinstance(each, torch.Tensor)]


def _take_tensors(program: Any) -> None:
    """Leave out inputs that are no tensors, None and numbers: the program has the example's in it already."""
    specs = program.graph_signature.input_specs
    unread = {node.name: node for node in program.graph.nodes if node.op == "placeholder" and not node.users}
    for spec in list(specs):
        if isinstance(spec.arg, ConstantArgument) and spec.arg.name in unread:
            program.graph.erase_node(unread[spec.arg.name])
            specs.remove(spec)


def _return_tensors(program: Any) -> None:
    """Leave out what else a program returns, None and numbers, which no library can (`returns` keeps it)."""
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
        node.update_arg(0, [_cast(node, each, value.dtype) for each in node.args[0]])
    elif name in COMPARISONS:
        _cast_all(node, _compared(node.args))
    elif name == "aten::clamp" and not value.dtype.is_floating_point:
        _limit(node, value)
    elif torch.Tag.pointwise in node.target.tags and name not in CONVERSIONS and value.dtype != torch.bool:
        _cast_all(node, value.dtype, but=CONDITIONAL.get(name))
        if name in QUOTIENTS and isinstance(node.args[1], int):
            node.update_arg(1, _number(node, node.args[1], value.dtype))


def _scale(node: Any) -> None:
    """Write out the factor of the second operand (`alpha`), which TVM does not read."""
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
    """Count indices from the end, which TVM's program of one does not know, from the front."""
    source, indices = node.args[0].meta["val"], list(node.args[1])
    if len(indices) > source.dim() or any(_dtype(index) is torch.bool for index in indices):
        return  # a mask is an index of several axes, of which TVM has none
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
    """The type of a tensor among a node's arguments; None of something else."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _compared(arguments: Any) -> torch.dtype:
    """The type in which PyTorch compares two arguments; of truths, one that LLVM compares too."""
    common = torch.result_type(*(getattr(each, "meta", {}).get("val", each) for each in arguments[:2]))
    return torch.uint8 if common == torch.bool else common


def _cast_all(node: Any, dtype: torch.dtype, *, but: int | None = None) -> None:
    for place, argument in enumerate(node.args):
        if place != but:
            node.update_arg(place, _cast(node, argument, dtype))


def _narrow(node: Any, value: Any) -> None:
    """Have a node compute in float32, and whoever uses it take the type of `value`."""
    with node.graph.inserting_after(node):
        back = node.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": value.dtype})
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
    back.meta["val"], node.meta["val"] = value, value.to(torch.float32)


def _limit(node: Any, value: Any) -> None:
    """Limit whole numbers by ``maximum`` and ``minimum``, each only where there is such a limit."""
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
    """A number in the type of what is computed; a divisor TVM takes for 32 bits wide and whole as it is."""
    if dtype.is_floating_point:
        return float(number)
    with node.graph.inserting_before(node):
        tensor = node.graph.call_function(torch.ops.aten.full.default, ([], number), {"dtype": dtype})
    tensor.meta["val"] = node.meta["val"].new_full((), number)
    return tensor


def _cast(node: Any, argument: Any, dtype: torch.dtype) -> Any:
    """The node's argument in that type, if it is a tensor."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.dtype == dtype:
        return argument
    with node.graph.inserting_before(node):
        cast = node.graph.call_function(torch.ops.aten._to_copy.default, (argument,), {"dtype": dtype})
    cast.meta["val"] = value.to(dtype)
    return cast
