"""Modules of functions, and what TVM's untuned build of a model computes."""

from __future__ import annotations

from pathlib import Path

import torch
import tvm
from torch import nn

from wmsched.backends import relax_build
from wmsched.backends.relax_latency import library_call
from wmsched.backends.relax_models import Model
from wmsched.backends.relax_programs import of_program
from wmsched.backends.tir_workload import host_target

TARGET = tvm.target.Target(host_target())


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


def built(folder: Path, model: Model, *inputs: torch.Tensor):
    """The outputs of the model's untuned build, whose library goes into the folder."""
    prepared = relax_build.prepare(model.module, TARGET)
    relax_build.compile_module(prepared, TARGET).export_library(str(folder / "m.so"))
    return library_call(folder / "m.so", TARGET, inputs)()
