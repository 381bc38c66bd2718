"""What PyTorch does to a program before it is converted.

It writes operators out in others, beyond its core set: those that no converter is for. And it computes what
hangs on constants alone, such as masks, positions and tables of angles. They have PyTorch's values to the
last bit then, need no converter, and TVM compiles no program for each of them to fold it later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.utils import _pytree

from wmsched.relax.importers.aten.importer import complex_in, label
from wmsched.relax.importers.aten.table import COMPLEX
from wmsched.relax.importers.operators.node import Refused
from wmsched.relax.importers.shapes import short

MAX_ROUNDS = 5  # a body may hold further operators
MAX_ELEMENTS = 1 << 22  # of a constant that is made
#: Operators that repeat one value: programs compute them where they are read, which costs less than a read.
REPEATING = (
    "expand",
    "full",
    "full_like",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "scalar_tensor",
    "zeros",
)
#: Operators whose result has no value yet.
UNSET = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def decomposed(program: Any, is_known: Callable[[Any], bool]) -> Any:
    """Return a program whose unknown operators are written out, where PyTorch has their bodies.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        In PyTorch's core operators; not changed.
    is_known : callable (torch.fx.Node) -> bool
        Whether a converter takes the operator of a node.
    """
    from torch._decomp import decomposition_table as bodies

    table = torch.export.default_decompositions()
    used: set[Any] = set()
    for _ in range(MAX_ROUNDS):
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        more = {node.target for node in calls if node.target in bodies and not is_known(node)} - used
        if not more:
            break
        used |= more
        for target in more:
            table[target] = bodies[target]
        try:
            program = program.run_decompositions(table)
        except Exception as error:  # of bodies that are not functional; no common base
            names = ", ".join(sorted(map(str, more)))
            raise Refused(f"{names}: PyTorch cannot write it out ({short(error)})") from error
    return program


def core(program: Any) -> Any:
    """Return a program in PyTorch's core operators; refuse complex numbers that it cannot write out."""
    try:
        return program.run_decompositions()
    except Exception as error:
        for node in program.graph.nodes:
            if node.op == "call_function" and complex_in(node):
                raise Refused(f"{label(node)}: {COMPLEX}") from error
        raise


def fold(program: Any) -> None:
    """Replace what is computed of constants alone by constants.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        In PyTorch's core operators, which write to nothing; changed. Parameters are no constants here: TVM
        folds what is computed of weights, and knows which of them are read as they are.
    """
    values = _constants(program)
    before = set(values)
    for node in program.graph.nodes:
        known = node.op == "call_function" and all(each in values for each in node.all_input_nodes)
        if known and (found := _computed(node, values)) is not None:
            values[node] = found
    for node in reversed(list(program.graph.nodes)):  # users come first
        if node in values and node not in before and _is_read(node, values) and not _is_kept(node, values):
            del values[node]
    made = [node for node in values if node not in before and _is_read(node, values)]
    for k, node in enumerate(made):
        _replace(program, node, f"computed_{k}", values[node])
    for node in reversed(list(program.graph.nodes)):
        if node in values and node not in before and not node.users:
            program.graph.erase_node(node)


def _constants(program: Any) -> dict[Any, Any]:
    """Return the values of a program's constants and of buffers that stay as they are, by their node."""
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    held = {**program.constants, **program.state_dict}
    targets = {
        spec.arg.name: spec.target
        for spec in signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR
        or (spec.kind is InputKind.BUFFER and spec.target not in changed)
    }
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
    found = {node: held.get(targets.get(node.name)) for node in placeholders}
    return {
        node: value for node, value in found.items() if isinstance(value, torch.Tensor) and _is_here(value)
    }


def _computed(node: Any, values: dict[Any, Any]) -> Any:
    """Return the result of a call of constants; None where it is no fixed one, or large."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.split("::")[1]
        drawn = torch.Tag.nondeterministic_seeded in target.tags
        if drawn or target._schema.is_mutable or name in UNSET or target.namespace not in ("aten", "prims"):
            return None
    elif getattr(target, "__name__", "") != "getitem":
        return None
    if not all(map(_is_here, _pytree.tree_leaves(node.meta.get("val")))):
        return None
    arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    try:
        with torch.no_grad():
            return target(*arguments, **options)
    except Exception:  # of a form that this build of PyTorch does not compute; no common base
        return None


def _is_here(value: Any) -> bool:
    """Return whether a value is a tensor of fixed size on the CPU that is not large."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and all(isinstance(extent, int) for extent in value.shape)
        and value.numel() <= MAX_ELEMENTS
    )


def _is_read(node: Any, values: dict[Any, Any]) -> bool:
    return any(user not in values for user in node.users)


def _is_kept(node: Any, values: dict[Any, Any]) -> bool:
    """Return whether a value is worth a constant in the program."""
    value = values[node]
    if not isinstance(value, torch.Tensor) or value.is_complex() or not value.numel():
        return False
    repeats = getattr(node.target, "_schema", None) and node.target._schema.name.split("::")[1] in REPEATING
    return not repeats and not any(user.op == "output" for user in node.users)


def _replace(program: Any, node: Any, name: str, value: torch.Tensor) -> None:
    """Make a constant of a node's value."""
    signature, graph = program.graph_signature, program.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        made = graph.placeholder(name)
    made.meta["val"] = node.meta["val"]
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(made.name), made.name)
    signature.input_specs.insert(0, spec)
    program._constants = {**program.constants, made.name: value.detach().contiguous().clone()}
    node.replace_all_uses_with(made, delete_user_cb=lambda user: True)
