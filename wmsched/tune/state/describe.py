"""What a tuned folder says of a model's states, and the values that they start with. Needs no TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmsched.base.errors import WmschedError
from wmsched.base.files import atomic_open
from wmsched.relax.state.pairs import State

__all__ = ["STARTS", "as_imported", "read_starts", "split", "write_starts"]

STARTS = "states.npz"  # bytes of the states that do not start with zeros, by name

Spec = dict[str, Any]


def split(inputs: Sequence[Spec], states: Sequence[State]) -> tuple[list[Spec], list[Spec]]:
    """Return the inputs that a user gives, and the states, as ``model.json`` has them.

    Parameters
    ----------
    inputs : sequence of dict
        ``name``, ``shape`` and ``dtype`` of each input of ``main``.
    """
    places = {state.input: state for state in states}
    given = [spec for place, spec in enumerate(inputs) if place not in places]
    kept = [
        {
            **inputs[place],
            "name": state.name,
            "input": place,
            "output": state.output,
            "start": STARTS if state.start is not None else "",
        }
        for place, state in sorted(places.items())
    ]
    return given, kept


def as_imported(about: Mapping[str, Any]) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """Return what a folder's ONNX model was imported with: inputs' shapes, and the options ``--state``."""
    every = [*about["inputs"], *about.get("states", ())]
    return {one["name"]: tuple(one["shape"]) for one in every}, tuple(about.get("state_options", ()))


def write_starts(folder: Path, states: Sequence[State]) -> None:
    """Write the values that states start with, where they are not all zeros."""
    import torch

    values = {
        state.name: state.start.contiguous().reshape(-1).view(torch.uint8).numpy()
        for state in states
        if state.start is not None
    }
    if values:
        with atomic_open(folder / STARTS) as file:
            np.savez(file, **values)


def read_starts(folder: Path, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the bytes that states start with, by name.

    Raises
    ------
    WmschedError
        The file is not there, or not whole.
    """
    wanted = [state["name"] for state in states if state.get("start")]
    if not wanted:
        return {}
    path = folder / STARTS
    try:
        with np.load(path) as file:
            return {name: file[name] for name in wanted}
    except Exception as error:  # of a zip file; no common base
        raise WmschedError(
            f"{path} cannot be read ({type(error).__name__}: {error}), and the model's states start with "
            "what is in it: compile the model again"
        ) from error
