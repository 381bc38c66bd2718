"""Memory of a tuned model's states between calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmsched.tune.state.describe import read_starts

__all__ = ["Kept"]


class Kept:
    """States of a model, as TVM's tensors on its device.

    A static cache is written where it lies: its tensor stays the same. Another state is the last call's
    output.

    Parameters
    ----------
    folder : Path
        For messages and what states start with.
    states : sequence of mapping
        Of ``model.json``.
    tvm : module
    device : tvm.runtime.Device
    """

    def __init__(self, folder: Path, states: Sequence[Mapping[str, Any]], tvm: Any, device: Any) -> None:
        self.folder, self.specs, self._tvm, self._device = folder, list(states), tvm, device
        self._starts = read_starts(folder, states)
        self._places = [spec["input"] for spec in states]
        self._outputs = [spec["output"] for spec in states]
        self._dropped = sorted(self._outputs, reverse=True)
        self._tensors: list[Any] = []
        self.reset({})

    @property
    def names(self) -> list[str]:
        """Names of the states, in order."""
        return [spec["name"] for spec in self.specs]

    def reset(self, values: Mapping[str, Any]) -> None:
        """Start anew, with values of some states; see `TunedModel.reset`."""
        unknown = [name for name in values if name not in self.names]
        if unknown:
            raise TypeError(
                f"{self.folder}: the model has no state {', '.join(unknown)}; it has {', '.join(self.names)}"
            )
        fresh = []
        for spec in self.specs:
            name, shape = spec["name"], tuple(spec["shape"])
            if name in values:
                fresh.append(self._given(spec, values[name]))
                continue
            size = math.prod(shape) * np.dtype(_numpy_name(spec["dtype"])).itemsize
            start = self._starts.get(name)
            fresh.append(self._of_bytes(np.zeros(size, np.uint8) if start is None else start, spec))
        self._tensors = fresh

    def merged(self, given: Sequence[Any]) -> list[Any]:
        """Return all inputs of ``main`` in order, of those that are given."""
        found = list(given)
        for place, tensor in zip(self._places, self._tensors):
            found.insert(place, tensor)
        return found

    def rest(self, outputs: list[Any]) -> list[Any]:
        """Keep the states among a call's outputs, and return the others."""
        self._tensors = [outputs[place] for place in self._outputs]
        for place in self._dropped:
            del outputs[place]
        return outputs

    def values(self) -> dict[str, Any]:
        """Return copies of the states, by name, as arrays."""
        return {name: tensor.numpy() for name, tensor in zip(self.names, self._tensors)}

    def is_like(self, other: Kept) -> bool:
        """Whether another model's states are the same, but for their places."""
        return [_about(spec) for spec in self.specs] == [_about(spec) for spec in other.specs]

    def share(self, other: Kept) -> None:
        """Go on with the states of another model as they are now."""
        self._tensors = list(other._tensors)

    def _given(self, spec: Mapping[str, Any], value: Any) -> Any:
        shape, dtype = (
            list(getattr(value, "shape", ())),
            str(getattr(value, "dtype", "")).removeprefix("torch."),
        )
        if shape != spec["shape"] or dtype != spec["dtype"]:
            raise ValueError(
                f"{self.folder}: state {spec['name']} is {dtype or type(value).__name__} {shape}; the model "
                f"was tuned for {spec['dtype']} {spec['shape']}"
            )
        if not isinstance(value, np.ndarray):
            import torch

            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        else:
            flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return self._of_bytes(flat, spec)

    def _of_bytes(self, value: Any, spec: Mapping[str, Any]) -> Any:
        shape = tuple(spec["shape"])
        found = self._tvm.runtime.empty(shape, spec["dtype"], self._device)
        if math.prod(shape):
            found.copyfrom(value.view(_numpy_name(spec["dtype"])).reshape(shape))
        return found


def _about(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    return spec["name"], tuple(spec["shape"]), spec["dtype"]


def _numpy_name(dtype: str) -> str:
    """Return numpy's name of a type; of bfloat16, which it lacks, one of as many bytes, as TVM takes it."""
    return "uint16" if dtype == "bfloat16" else dtype
