"""Save and rebuild the output structure of a PyTorch model, so that a tuned model returns the same.

Models of transformers return objects with named fields; others return nested lists or dictionaries. An
exported program keeps that structure as a "treespec" of torch.utils._pytree. A compiled library returns only
a flat list of tensors.
"""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wmsched.base.errors import WmschedError


def structure(program: Any) -> str:
    """Return a program's output structure as text.

    Parameters
    ----------
    program : torch.export.ExportedProgram

    Returns
    -------
    str
        Text for `read`. "" for one tensor, a tuple of several, and structures PyTorch cannot serialise.
    """
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    spec = program.call_spec.out_spec
    given = [one.arg for one in program.graph_signature.output_specs if one.kind == OutputKind.USER_OUTPUT]
    known = all(isinstance(one, (ConstantArgument, TensorArgument)) for one in given)
    if spec is None or not known or len(given) != spec.num_leaves:
        return ""
    constants = {n: one.value for n, one in enumerate(given) if isinstance(one, ConstantArgument)}
    several = spec.type is tuple and spec.num_leaves > 1  # a 1-tuple would come back as its element
    # `spec.children` differs between torch versions (2.8), so count nodes.
    leaves = spec.num_leaves == spec.num_children == spec.num_nodes - 1
    flat = spec.is_leaf() or (several and leaves)
    if flat and not constants:
        return ""
    text = written(spec)
    return json.dumps({"treespec": text, "constants": constants}) if text else ""


def written(spec: Any) -> str:
    """Return a treespec as text; "" if one of its types has no serialiser."""
    from torch.utils import _pytree

    try:
        return str(_pytree.treespec_dumps(spec))
    except (NotImplementedError, TypeError, ValueError):
        return ""


class Structure(NamedTuple):
    """Output structure of a model: its treespec, and the leaves that are no tensors by leaf number."""

    spec: Any
    constants: dict[int, Any]


def read(text: str) -> Structure:
    """Return the `Structure` in a text of `structure`; imports the modules of its types.

    Raises
    ------
    WmschedError
        One of its types is not installed.
    """
    from torch.utils import _pytree

    held = json.loads(text)
    import_types(_types(json.loads(held["treespec"])))
    constants = {int(place): leaf for place, leaf in held["constants"].items()}
    return Structure(_pytree.treespec_loads(held["treespec"]), constants)


def rebuild(structure: Structure, tensors: Sequence[Any]) -> Any:
    """Return the model's output with these tensors as its tensor leaves, in order.

    Raises
    ------
    WmschedError
        The number of tensors is wrong.
    """
    from torch.utils import _pytree

    spec, constants = structure
    if spec.num_leaves != len(tensors) + len(constants):
        raise WmschedError(
            f"{len(tensors)} tensors came out, where the model returns {spec.num_leaves - len(constants)}"
        )
    rest = iter(tensors)
    leaves = [constants[n] if n in constants else next(rest) for n in range(spec.num_leaves)]
    return _pytree.tree_unflatten(leaves, spec)


def types_in(path: Path) -> set[str]:
    """Return the names of input and output types in a ``.pt2`` file; an empty set if it is no such file."""
    found: set[str] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    for spec in _specs(json.loads(archive.read(name))):
                        found |= _types(json.loads(spec))
    except (OSError, ValueError, zipfile.BadZipFile):  # the program's reader reports what is wrong
        return set()
    return found


def import_types(names: Iterable[str]) -> None:
    """Import the modules of types; each registers its types, without which PyTorch reads no treespec.

    Raises
    ------
    WmschedError
        A module cannot be imported.
    """
    for name in names:
        module = name.rpartition(".")[0]
        try:
            if module:
                importlib.import_module(module)
        except ImportError as error:
            raise WmschedError(
                f"the model takes or returns a {name}, and {module} cannot be imported here ({error}): "
                "install the package that it is from"
            ) from error


def _specs(value: Any) -> Iterator[str]:
    """Yield every treespec in the JSON of a program file."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("in_spec", "out_spec") if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _specs(part)


def _types(spec: Any) -> set[str]:
    """Return the type names in a treespec, [version, {type, context, children_spec}]."""
    if isinstance(spec, list):
        return set().union(*map(_types, spec))
    if not isinstance(spec, dict):
        return set()
    own = {spec["type"]} if isinstance(spec.get("type"), str) else set()
    return own | _types(spec.get("children_spec"))
