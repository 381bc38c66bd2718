"""Shapes of a model's inputs in Relax: declared shapes, the user's, and numbers for symbolic extents."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from wmsched.base.errors import UnknownName, WmschedError

Shapes = Mapping[str, tuple[int, ...]]


def declared_inputs(name: str, module: Any) -> dict[str, tuple[list[Any], str]]:
    """Return {name: (extents, element type)} of the inputs of ``main``, in order."""
    for var in module["main"].params:
        if getattr(var.ty, "shape", None) is None:
            raise WmschedError(
                f"{name}: its input {var} is {var.ty}, no tensor of known rank: give its shape, for example "
                f"--shape {var}=1,3,224,224, or export it again without that one"
            )
    return {str(var): (list(var.ty.shape), str(var.ty.dtype)) for var in module["main"].params}


def fix_shapes(
    name: str, module: Any, declared: dict[str, tuple[list[Any], str]], shapes: Shapes
) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Return the module with numbers for its symbolic extents, and its inputs' shapes.

    Works around apache-tvm 0.27, which reads before the tensor for a negative constant index: indices become
    non-negative. Remove when it does not.

    Raises
    ------
    UnknownName, WmschedError
        An input or a shape does not fit the model, or a needed shape is missing.
    """
    from tvm import relax, tirx

    shapes = by_patterns(shapes, list(declared))
    check_names(name, shapes, list(declared))
    bound: dict[str, int] = {}
    symbols: dict[Any, int] = {}
    for label, wanted in shapes.items():
        extents = declared[label][0]
        text = shape_text(extents)
        if len(extents) != len(wanted):
            raise WmschedError(f"--shape {label}={shape_text(wanted)}: {name} has {label} with shape {text}")
        for extent, number in zip(extents, wanted):
            if isinstance(extent, tirx.IntImm):
                if int(extent) != number:
                    raise WmschedError(
                        f"--shape {label}={shape_text(wanted)}: {name} was exported with {label} of shape "
                        f"{text}, and its numbers cannot be changed; export it again with that shape"
                    )
            elif bound.setdefault(str(extent), number) != number:
                raise WmschedError(
                    f"--shape {label}={shape_text(wanted)}: {extent} of {name} is {bound[str(extent)]} "
                    "in another input"
                )
            elif isinstance(extent, tirx.Var):
                symbols[extent] = number
    if symbols:
        with importing(name, "these shapes"):
            module = relax.transform.BindSymbolicVars(symbols, "main")(module)
    fixed = {}
    for label, var in zip(declared, module["main"].params):
        extents = list(var.ty.shape)
        if not all(isinstance(extent, tirx.IntImm) for extent in extents):
            example = shape_text([extent if isinstance(extent, tirx.IntImm) else 1 for extent in extents])
            raise WmschedError(
                f"{name}: its input {label} has the shape {shape_text(extents)}, and a program is "
                f"tuned for numbers: give them, for example --shape {label}={example}"
            )
        fixed[label] = tuple(int(extent) for extent in extents)
    return _from_the_front(module), fixed


def _from_the_front(module: Any) -> Any:
    """Return the module with non-negative constant indices."""
    import numpy as np
    from tvm import relax, tirx
    from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

    def from_the_front(call: Any, _: Any) -> Any:
        if not isinstance(call, relax.Call):  # a variable that is bound to one
            return call
        data, axis = call.args[0], call.attrs.axis
        places = call.args[1].value.numpy()
        extents = list(data.ty.shape) if data.ty.shape is not None else []
        extent = extents[int(axis) % len(extents)] if axis is not None and extents else None
        if not (places < 0).any() or not isinstance(extent, tirx.IntImm):
            return call
        counted = np.asarray(np.where(places < 0, places + int(extent), places))
        constant = relax.const(counted.astype(places.dtype))
        return relax.op.take(data, constant, axis=axis, mode=call.attrs.mode)

    take = is_op("relax.take")(wildcard(), is_const())
    for name, function in module.functions.items():
        if isinstance(function, relax.Function):
            module[name] = rewrite_call(take, from_the_front, function)
    return module


def by_patterns(shapes: Shapes, known: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return shapes by input, of names and of patterns such as ``past_key_values.*``; a name goes before."""
    found: dict[str, tuple[int, ...]] = {}
    for label, shape in shapes.items():
        matching = fnmatch.filter(known, label) if "*" in label and label not in known else []
        found |= {one: found.get(one, shape) for one in matching} or {label: shape}
    return found | {label: shape for label, shape in shapes.items() if label in known}


def check_names(name: str, shapes: Shapes, known: list[str]) -> None:
    for label in shapes:
        if label not in known:
            raise UnknownName(
                f"--shape {label}=...: {name} has no such input; its inputs: {', '.join(known)}"
            )


def shape_text(shape: Sequence[Any]) -> str:
    """Return extents separated by commas; symbols by name."""
    return ",".join(str(getattr(extent, "value", extent)) for extent in shape)


class importing:
    """Context that turns any error of TVM's importers into a `WmschedError` with a remedy."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self.what = name, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, WmschedError):
            raise WmschedError(f"{self.name}: {error}") from error
        if isinstance(error, Exception):
            import tvm

            raise WmschedError(
                f"{self.name}: Relax of TVM {tvm.__version__} does not take it ({short(error)}); of "
                f"{self.what} it knows most operators, and a model without this one, or exported otherwise, "
                "may pass"
            ) from error


def short(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][-300:]}" if lines else type(error).__name__
