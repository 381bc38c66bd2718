"""Small models for `wmsched tune MODEL`, and a run of it with made-up times and a small search."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from unittest import mock

import programs as P
import torch
import tvm
from rich.console import Console
from torch import nn
from tvm.s_tir import meta_schedule as ms

from wmsched.base.cores import unbound
from wmsched.metaschedule.measure.measurer import Measurer
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import Model
from wmsched.schedules.database import RECORDS
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune import latency
from wmsched.tune import tune_model as tuning
from wmsched.tune.latency import difference, library_call
from wmsched.tune.options import ModelOptions
from wmsched.tune.prepare import SETTINGS

TASKS = 5  # of Net: convolution, pooling, dense, and between them what puts channels last, and first again
ALL = dict.fromkeys(SETTINGS, True)


class Net(nn.Module):
    """A convolution with batch normalisation, pooling and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.dense = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.dense(nn.functional.max_pool2d(x, 16).flatten(1))


class Layers(nn.Module):
    """Two dense layers, each a task, where it does not matter which model is tuned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 48), nn.Linear(48, 32)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Sum(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) + y


def exported(folder: Path, name: str, module: nn.Module, *inputs, dynamic=None) -> str:
    path = folder / name
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return str(path)


@functools.cache
def _read(name: str, shapes: tuple, changed: int) -> Model:
    return load(name, dict(shapes))


def imported(name: str, shapes=None) -> Model:
    """`load`, once in a process for each file: PyTorch takes seconds to decompose a program."""
    path = Path(name)
    return _read(name, tuple((shapes or {}).items()), path.stat().st_mtime_ns if path.is_file() else 0)


def small():
    return ms.search_strategy.EvolutionarySearch(
        population_size=16, genetic_num_iters=1, init_min_unmeasured=8
    )


def made_up(**parts) -> Measurer:
    """A measurer whose times are a function of the program."""
    return Measurer(
        tvm.target.Target(meta_host_target()), **({"builder": P.NoBuilder(), "runner": P.NoRunner()} | parts)
    )


def quick_timing():
    """A context in which timings of whole models are short: how long one takes is not what is looked at."""
    return mock.patch.multiple(latency, REST=0.0, AT_LEAST=0.005)


def run(name: str, out: Path, *, measurer=None, cost_model="random", finalists=1, **settings):
    """Tune with made-up times and a small search; what it printed, and what it came to."""
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    own = tuning.load is not load  # a test's
    with quick_timing(), mock.patch.object(tuning, "load", tuning.load if own else imported):
        found = tuning.tune_model(
            ModelOptions(name=name, out=out, cost_model=cost_model, seed=1, finalists=finalists, **settings),
            console=console,
            measurer=measurer or made_up(),
            strategy=small,
        )
    return console.export_text(), found


def records(out: Path) -> list[list]:
    return [json.loads(line) for line in (out / RECORDS).read_text().splitlines()]


def schedules(out: Path) -> list[str]:
    return [json.dumps([program, trace]) for program, (trace, *_) in records(out)]


def off_from_torch(library: Path, name: str) -> float:
    """How far a library's outputs are from the model's in PyTorch."""
    model = imported(name)
    call = library_call(library, tvm.target.Target(meta_host_target()), list(model.inputs.values()))
    with unbound():
        return difference(call(), model.eager())
