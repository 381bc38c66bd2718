"""Exported programs as PyTorch can write them into a file, whatever types they take and return."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from wmsched.base import pytree


def storable(program: Any) -> Any:
    """The program, with a flat tuple for what it takes or returns where PyTorch cannot write its type down.

    A `typing.NamedTuple` is such a type, and a dataclass that was registered without a
    ``serialized_type_name``. What is computed of which tensor stays as it is.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        It stays as it is.
    """
    from torch.utils import _pytree

    entry, *inner = program.module_call_graph
    taken, returned = entry.signature.in_spec, entry.signature.out_spec
    changed: dict[str, Any] = {}
    if not pytree.written(taken):
        flat = _pytree.tree_structure(((0,) * taken.num_leaves, {}))
        changed |= {"in_spec": flat, "forward_arg_names": None}
    if not pytree.written(returned):
        changed["out_spec"] = _pytree.tree_structure((0,) * returned.num_leaves)
    if not changed:
        return program
    found = copy.copy(program)
    signature = dataclasses.replace(entry.signature, **changed)
    found._module_call_graph = [dataclasses.replace(entry, signature=signature), *inner]
    if "in_spec" in changed and program.example_inputs is not None:
        found.example_inputs = (tuple(_pytree.tree_leaves(program.example_inputs)), {})
    return found
