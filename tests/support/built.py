"""Modules of functions, and what TVM's untuned build of a model computes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn

from wmsched.relax.importers.model import Model
from wmsched.relax.importers.torch_export import of_program
from wmsched.relax.passes import pipeline
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune.latency import library_call

TARGET = tvm.target.Target(meta_host_target())


class Of(nn.Module):
    """A module of a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def model_of(module: nn.Module, *inputs: torch.Tensor) -> Model:
    """The model that a module in evaluation mode is, exported with these inputs."""
    return of_program("model", torch.export.export(module.eval(), inputs), {})


def run_kernel(kernel: Any, *arguments: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """What a function in TensorIR computes into an array of zeros, its last argument."""
    module = tvm.tirx.build(tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), TARGET)
    result = tvm.runtime.tensor(np.zeros(shape, dtype))
    module["main"](*map(tvm.runtime.tensor, arguments), result)
    return result.numpy()


def functions(module: Any) -> list[str]:
    """The names of the functions in TensorIR that a Relax module becomes, in their order."""
    prepared = pipeline.prepare(module, TARGET)
    return sorted(str(v.name_hint) for v, f in prepared.functions.items() if isinstance(f, tvm.tirx.PrimFunc))


def written(folder: Path, module: nn.Module, data: torch.Tensor, **more: Any) -> str:
    """The name of an ONNX file of PyTorch's older exporter, whose input is x."""
    path = folder / "m.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its end, of shapes taken for numbers
        torch.onnx.export(module.eval(), (data,), str(path), dynamo=False, input_names=["x"], **more)
    return str(path)


def built(folder: Path, model: Model, *inputs: torch.Tensor):
    """The outputs of the model's untuned build, whose library goes into the folder."""
    prepared = pipeline.prepare(model.module, TARGET)
    pipeline.compile_module(prepared, TARGET).export_library(str(folder / "m.so"))
    return library_call(folder / "m.so", TARGET, inputs)()
