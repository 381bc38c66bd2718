"""What a PyTorch model returns, beyond its tensors: kept with a tuned model, which then returns the same.

A model of the package transformers returns an object with names, others nested lists or dictionaries. An
exported program knows how its tensors lie in that (a "treespec" of torch.utils._pytree); a compiled library
has the tensors alone, one after the other.
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
    """What a program returns, to be written into a file.

    Parameters
    ----------
    program : torch.export.ExportedProgram

    Returns
    -------
    str
        For `read`; "" for one tensor, a tuple of several, and what PyTorch cannot write down.
    """
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    spec = program.call_spec.out_spec
    given = [one.arg for one in program.graph_signature.output_specs if one.kind == OutputKind.USER_OUTPUT]
    known = all(isinstance(one, (ConstantArgument, TensorArgument)) for one in given)
    if spec is None or not known or len(given) != spec.num_leaves:
        return ""
    constants = {n: one.value for n, one in enumerate(given) if isinstance(one, ConstantArgument)}
    several = spec.type is tuple and spec.num_leaves > 1  # a tuple of one would come back as what is in it
    # not by its `children`, which are another thing in torch 2.8
    leaves = spec.num_leaves == spec.num_children == spec.num_nodes - 1
    flat = spec.is_leaf() or (several and leaves)
    if flat and not constants:
        return ""
    text = written(spec)
    return json.dumps({"treespec": text, "constants": constants}) if text else ""


def written(spec: Any) -> str:
    """A treespec's text; "" where it has a type that has not said how it is written."""
    from torch.utils import _pytree

    try:
        return str(_pytree.treespec_dumps(spec))
    except (NotImplementedError, TypeError, ValueError):
        return ""


class Structure(NamedTuple):
    """What `structure` has written: a treespec, and the leaves of it that are no tensors, by their places."""

    spec: Any
    constants: dict[int, Any]


def read(text: str) -> Structure:
    """`structure`'s text again, the modules of its types imported.

    Raises
    ------
    WmschedError
        It has a type that is not installed here.
    """
    from torch.utils import _pytree

    held = json.loads(text)
    import_types(_types(json.loads(held["treespec"])))
    constants = {int(place): leaf for place, leaf in held["constants"].items()}
    return Structure(_pytree.treespec_loads(held["treespec"]), constants)


def rebuild(structure: Structure, tensors: Sequence[Any]) -> Any:
    """What the model would return with these tensors in it, in their order.

    Raises
    ------
    WmschedError
        It has other tensors.
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
    """Types that the program in a ``.pt2`` file takes and returns, by name; none where it is no such file."""
    found: set[str] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    for spec in _specs(json.loads(archive.read(name))):
                        found |= _types(json.loads(spec))
    except (OSError, ValueError, zipfile.BadZipFile):  # whoever reads it as a program says what is wrong
        return set()
    return found


def import_types(names: Iterable[str]) -> None:
    """Import the modules of types, which then tell PyTorch what lies in them; without, it reads no treespec.

    Raises
    ------
    WmschedError
        There is no such module.
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
    """Every treespec in what a program's file says."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("in_spec", "out_spec") if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _specs(part)


def _types(spec: Any) -> set[str]:
    """Names in a treespec: [version, {type, context, children_spec}]."""
    if isinstance(spec, list):
        return set().union(*map(_types, spec))
    if not isinstance(spec, dict):
        return set()
    own = {spec["type"]} if isinstance(spec.get("type"), str) else set()
    return own | _types(spec.get("children_spec"))
