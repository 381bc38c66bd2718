"""Shape that inputs are run in: the one they have, or the least that they may be padded to. Needs no TVM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Picker", "cut", "padded"]

Specs = Sequence[Mapping[str, Any]]  # ``name``, ``shape`` and ``dtype`` of each input


class Picker:
    """Chooses among the shapes of a folder.

    Parameters
    ----------
    folder : Path
        For messages.
    shapes : sequence of Specs
        Inputs of each shape.
    padding : sequence of mapping
        `wmsched.tune.shapes.padding.padding_of` of them.
    """

    def __init__(self, folder: Path, shapes: Sequence[Specs], padding: Sequence[Mapping[str, Any]]) -> None:
        self.folder, self.shapes, self.padding = folder, shapes, padding
        self.exact = {_key(specs): number for number, specs in enumerate(shapes)}
        self.groups = {(k, axis): group for group in padding for k, axis in group["inputs"]}

    def __call__(self, values: Sequence[Any]) -> int:
        """Return the shape that inputs have, or fit in with padding.

        Raises
        ------
        ValueError
            They fit in none, or padding would change the result.
        """
        found = self.exact.get(tuple(tuple(value.shape) for value in values))
        if found is not None:
            return found
        fitting, refused = [], ""
        for number, specs in enumerate(self.shapes):
            if not all(_is_within(value, spec) for value, spec in zip(values, specs)):
                continue
            why = self._why_not(values, specs)
            if not why:
                fitting.append((sum(math.prod(spec["shape"]) for spec in specs), number))
            refused = refused or why
        if not fitting:
            raise ValueError(self._refusal(values, refused))
        return min(fitting)[1]

    def _why_not(self, values: Sequence[Any], specs: Specs) -> str:
        """Return why inputs may not be padded to a shape they are within; "" where they may."""
        extents: dict[int, int] = {}
        for k, (value, spec) in enumerate(zip(values, specs)):
            for axis, (extent, most) in enumerate(zip(value.shape, spec["shape"])):
                group = self.groups.get((k, axis))
                if group is None:
                    if extent != most:
                        return f"{spec['name']} has one extent of axis {axis} in all shapes, {most}"
                    continue
                if extents.setdefault(id(group), extent) != extent:
                    first, along = group["inputs"][0]
                    return (
                        f"axis {axis} of {spec['name']} and axis {along} of {specs[first]['name']} vary "
                        f"together, and are {extent} and {extents[id(group)]}"
                    )
        for group in self.padding:
            extent = extents[id(group)]
            k, axis = group["inputs"][0]
            if extent == specs[k]["shape"][axis]:
                continue
            if group["why"]:
                return f"axis {axis} of {specs[k]['name']} cannot be padded: {group['why']}"
            for _, _, over, under, _ in group["outputs"]:
                if over * extent % under:
                    return f"axis {axis} of {specs[k]['name']} has outputs that do not follow {extent}"
            for place in group["masks"]:
                for other, along in group["inputs"]:
                    if other == place and not _begins(values[place], along):
                        return (
                            f"{specs[place]['name']} begins with zeros along axis {along}, and a row that "
                            "sees nothing would see its padding: put what is masked behind"
                        )
        return ""

    def _refusal(self, values: Sequence[Any], why: str) -> str:
        names = [spec["name"] for spec in self.shapes[0]]
        given = ", ".join(f"{name} {list(value.shape)}" for name, value in zip(names, values))
        have = "; ".join(
            ", ".join(f"{spec['name']} {list(spec['shape'])}" for spec in specs) for specs in self.shapes
        )
        asked = " ".join(
            f"--shape {spec['name']}={','.join(map(str, value.shape))}"
            for spec, value in zip(self.shapes[0], values)
        )
        why = why or "they are larger than each in some extent, or of another rank"
        return (
            f"{self.folder}: the inputs are {given}; the model was compiled for {have}. {why}. Compile it "
            f"with this shape among its own ({asked})"
        )

    def cuts(self, values: Sequence[Any]) -> list[list[int]]:
        """Return [output, axis, extent] of the outputs' axes, for inputs that are padded."""
        found = []
        for group in self.padding:
            k, axis = group["inputs"][0]
            for output, along, over, under, offset in group["outputs"]:
                found.append([output, along, over * int(values[k].shape[axis]) // under + offset])
        return found


def padded(value: Any, shape: Sequence[int]) -> Any:
    """Return an array or tensor with zeros behind, in a shape."""
    if tuple(value.shape) == tuple(shape):
        return value
    places = tuple(map(slice, value.shape))
    if isinstance(value, np.ndarray):
        found = np.zeros(shape, value.dtype)
    else:
        found = value.new_zeros(tuple(shape))
        value = value.detach()
    found[places] = value
    return found


def cut(values: Sequence[Any], cuts: Sequence[Sequence[int]]) -> list[Any]:
    """Return outputs without their padding, each with memory of its own."""
    found = list(values)
    for output, axis, extent in cuts:
        if found[output].shape[axis] > extent:
            value = found[output][(slice(None),) * axis + (slice(extent),)]
            found[output] = value.copy() if isinstance(value, np.ndarray) else value.clone()
    return found


def _key(specs: Specs) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(spec["shape"]) for spec in specs)


def _is_within(value: Any, spec: Mapping[str, Any]) -> bool:
    return len(value.shape) == len(spec["shape"]) and all(
        0 < extent <= most for extent, most in zip(value.shape, spec["shape"])
    )


def _begins(value: Any, axis: int) -> bool:
    """Whether no element at the start of an axis is zero."""
    return bool((value[(slice(None),) * axis + (0,)] != 0).all())
