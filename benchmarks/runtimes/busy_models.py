"""The models of `benchmarks.runtimes.busy`: an LSTM and a small perceptron beside those of `wmsched.zoo`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ZOO = ("mobilenetv2", "resnet50", "bert-base")  # in the order of their latency


class Recurrent(nn.Module):
    """A one-layer LSTM whose last output a linear layer reads."""

    def __init__(self, features: int = 64, hidden: int = 128, classes: int = 10) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (_perceptron, (1, 64)),
    "lstm": (Recurrent, (1, 32, 64)),
}


def build(name: str) -> tuple[nn.Module, Tensor]:
    """A model of `OWN` or of the zoo with its seeded weights and input.

    Raises
    ------
    KeyError
        There is no model of that name.
    """
    torch.manual_seed(0)
    if name in OWN:
        make, shape = OWN[name]
        return make().eval(), torch.randn(shape)
    from wmsched.zoo import torch_models

    return torch_models.build(name)


def export(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a model as ``NAME.pt2`` and ``NAME.onnx`` into `folder`, unless they are there; their paths.

    Raises
    ------
    ModuleNotFoundError
        onnxscript, which torch.onnx exports with, is not installed.
    """
    program, graph = folder / f"{name}.pt2", folder / f"{name}.onnx"
    if program.is_file() and graph.is_file():
        return program, graph
    folder.mkdir(parents=True, exist_ok=True)
    model, data = build(name)
    with torch.inference_mode():
        exported: Any = torch.export.export(model, (data,))
        torch.export.save(exported, program)
        torch.onnx.export(model, (data,), str(graph), dynamo=True, external_data=False)
    return program, graph
