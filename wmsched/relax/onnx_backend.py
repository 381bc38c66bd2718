"""Backend in the form of the ONNX project: ``prepare`` builds a model, ``run`` runs it.

>>> from wmsched.relax.onnx_backend import Backend
>>> outputs = Backend.run_model(model, [image])

Functions have the schedules of TVM's default build: it serves tests of operators, not of speed. Inputs that
say how large something is (axes, shapes, pads, scales) are bound when the model runs, because a program here
has fixed shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.backend import base

from wmsched.base.errors import WmschedError
from wmsched.relax.importers.onnx_binding import bound, inputs_to_bind
from wmsched.relax.importers.shapes import importing
from wmsched.toolchain.resolve import meta_schedule_tvm

__all__ = ["Backend", "Prepared"]

TARGET = {"kind": "llvm", "opt-level": 0}  # quickest to compile
MAX_BUILDS = 16  # of one model with other values of its bound inputs; the oldest goes


class Prepared(base.BackendRep):
    """Model that is ready to run."""

    def __init__(self, model: Any) -> None:
        meta_schedule_tvm()
        from wmsched.relax.importers.onnx_import import check_values

        with importing(_name(model), "ONNX models"):
            check_values(model)
        self.model = model
        weights = {tensor.name for tensor in model.graph.initializer}
        self.names = [value.name for value in model.graph.input if value.name not in weights]
        self.binding = [name for name in inputs_to_bind(model) if name in self.names]
        self.open = any(_is_open(value) for value in model.graph.input if value.name in self.names)
        self.builds: dict[Any, Any] = {}
        if not self.binding and not self.open:
            self._build({}, {})

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Return the outputs of one run, as arrays.

        Parameters
        ----------
        inputs : sequence of numpy.ndarray, or mapping of str to numpy.ndarray

        Raises
        ------
        WmschedError
            The number of inputs is wrong, or the model cannot be built with their shapes and values.
        """
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(self.names, inputs))
        if len(given) != len(self.names) or set(given) != set(self.names):
            raise WmschedError(
                f"{len(inputs)} inputs are given; the model has {', '.join(self.names) or 'none'}"
            )
        given = {name: np.asarray(value) for name, value in given.items()}
        values = {name: given.pop(name) for name in self.binding}
        shapes = {name: value.shape for name, value in given.items()} if self.open else {}
        return self._build(values, shapes)(list(given.values()))

    def _build(self, values: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
        key = (
            tuple((name, value.dtype.str, value.shape, value.tobytes()) for name, value in values.items()),
            tuple(shapes.items()),
        )
        if key not in self.builds:
            while len(self.builds) >= MAX_BUILDS:
                self.builds.pop(next(iter(self.builds)))
            self.builds[key] = built(bound(self.model, values), shapes)
        return self.builds[key]


def _name(model: Any) -> str:
    return model.graph.name or "the model"


def _is_open(value: Any) -> bool:
    tensor = value.type.tensor_type
    return not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in tensor.shape.dim)


def built(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a function of a list of arrays that runs the model."""
    tvm = meta_schedule_tvm()
    from tvm import relax

    from wmsched.relax.importers.onnx_import import imported
    from wmsched.relax.passes import pipeline

    target = tvm.target.Target(TARGET)
    name = _name(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with importing(name, "ONNX models"):
            module = imported(model, shapes)
            executable = pipeline.compile_module(pipeline.prepare(module, target), target)
            main = relax.VirtualMachine(executable, tvm.cpu())["main"]

    def run(arrays: Sequence[Any]) -> tuple[Any, ...]:
        found = main(*[tvm.runtime.tensor(np.require(array, requirements="C")) for array in arrays])
        several = not isinstance(found, tvm.runtime.Tensor)
        return tuple(one.numpy() for one in found) if several else (found.numpy(),)

    return run


class Backend(base.Backend):
    """ONNX's face of wmsched: processors only."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Prepared:
        """Return the model, built where its inputs leave nothing open.

        Raises
        ------
        WmschedError
            The model cannot be imported or built; the message names the operator.
        """
        super().prepare(model, device, **options)
        return Prepared(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether programs are built for the device."""
        return device == "CPU"
