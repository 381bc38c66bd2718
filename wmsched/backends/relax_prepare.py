"""A whole model as it is tuned: prepared by its folder's settings, and checked where its layouts change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wmsched import tuned_folder
from wmsched.backends import relax_build
from wmsched.backends.relax_latency import difference, library_call, tolerance, unbound
from wmsched.backends.relax_layouts import channels_last
from wmsched.backends.relax_models import Model, tensors

logger = logging.getLogger("wmsched")

SETTINGS = ("vector_math", "pack_weights", "channels_last")  # of how candidates are compiled, on a processor


def prepare_model(
    model: Model, target: Any, settings: Mapping[str, bool], folder: Path
) -> tuple[Any, dict[str, bool]]:
    """The model as functions in TensorIR, and the settings that this took.

    With channels last, what the model then computes is compared, untuned, with PyTorch or, where that cannot
    run it, with the model as it was; where they differ, channels stay where they are, and a warning says so.

    Parameters
    ----------
    settings : mapping of str to bool
        `SETTINGS`, as `tuned_folder.settled` gives them.
    folder : Path
        For the libraries that are compared; it is there.
    """
    chosen = dict(settings)
    module = channels_last(model.module) if chosen["channels_last"] else model.module
    with unbound():  # `prepare` runs what computes constants
        prepared = relax_build.prepare(module, target, pack_weights=chosen["pack_weights"])
    if module is model.module:
        return prepared, chosen
    try:
        off, allowed = _off(model, prepared, target, folder)
        why = "" if off <= allowed else f"the outputs are off by {off:.2g} (allowed: {allowed:g})"
    except Exception as error:  # of TVM's build or of the built program; there is no common base
        why = f"the model cannot be built ({str(error).strip()[-300:]})"
    if not why:
        return prepared, chosen
    logger.warning("wmsched: channels stay where they are: with them last %s", why)
    return prepare_model(model, target, chosen | {"channels_last": False}, folder)


def _off(model: Model, prepared: Any, target: Any, folder: Path) -> tuple[float, float]:
    """How far a prepared module's outputs are from the model's, and how far they may be."""
    inputs = list(model.inputs.values())

    def outputs(module: Any, name: str) -> Any:
        path = scratch / f"{name}.so"
        relax_build.compile_module(module, target).export_library(str(path))
        call = library_call(path, target, inputs)
        with unbound():
            return call()

    with tuned_folder.scratch(folder) as scratch:
        found = outputs(prepared, "last")
        reference = None
        if model.eager is not None:
            try:
                reference = model.eager()
            except Exception as error:  # a program of another machine or version of torch
                logger.info("PyTorch cannot run %s: %s", model.name, error)
        if reference is None:
            reference = outputs(relax_build.prepare(model.module, target), "first")
        return difference(found, reference), tolerance([*inputs, *tensors(reference)])
