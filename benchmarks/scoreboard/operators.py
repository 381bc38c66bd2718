"""Figures of operators: ONNX's backend tests and PyTorch's samples, from committed lines."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

from benchmarks.operators import onnx_table, torch_table
from benchmarks.operators.lines import read
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured

LINES = "onnx-backend.jsonl"
TORCH_LINES = "torch-ops.jsonl"
OPERATORS: list[Figure] = []
figure = functools.partial(
    registry.figure, into=OPERATORS, command="python -m benchmarks.operators.onnx_table"
)

torch_figure = functools.partial(
    registry.figure, into=OPERATORS, command="python -m benchmarks.operators.torch_table"
)


def _count(folder: Path, who: str, verdict: str, sort: str = "") -> Measured:
    found = onnx_table.last(read(folder / LINES))
    own = [line for (_, runtime), line in found.items() if runtime == who]
    if not own:
        raise ValueError(f"no case of {who} is in its lines")
    return Measured(sum(line["verdict"] == verdict and (not sort or line["sort"] == sort) for line in own))


@figure("onnx.right", LINES)
def _right(folder: Path) -> Measured:
    return _count(folder, onnx_table.OURS, "right")


@figure("onnx.wrong", LINES, asked="max 0")
def _wrong(folder: Path) -> Measured:
    return _count(folder, onnx_table.OURS, "wrong")


@figure("onnx.crash", LINES, asked="max 0")
def _crash(folder: Path) -> Measured:
    return _count(folder, onnx_table.OURS, "crash")


@figure("onnx.unnamed", LINES, asked="max 0")
def _unnamed(folder: Path) -> Measured:
    return _count(folder, onnx_table.OURS, "unnamed")


@figure("onnx.right_over_onnxruntime", LINES, asked="min 0.95")
def _over_onnxruntime(folder: Path) -> Measured:
    """Right cases over onnxruntime's, where sizes are known and values are tensors of numbers."""
    ours, theirs = (
        _count(folder, who, "right", "tensors").value for who in (onnx_table.OURS, onnx_table.RUNTIME)
    )
    if not theirs:
        raise ValueError("onnxruntime has no right case in its lines")
    return Measured(ours / theirs)


def _samples(folder: Path) -> Counter[str]:
    """Return how many of PyTorch's samples have each verdict."""
    found = torch_table.tally(read(folder / TORCH_LINES), torch_table.OURS)
    if not found["exported"]:
        raise ValueError("no sample of ours is in its lines")
    return found


@torch_figure("torch_ops.right_share", TORCH_LINES, asked="min 0.75")
def _right_share(folder: Path) -> Measured:
    """Right samples over those that torch.export takes."""
    found = _samples(folder)
    return Measured(found["right"] / found["exported"])


@torch_figure("torch_ops.wrong", TORCH_LINES, asked="max 0")
def _wrong_samples(folder: Path) -> Measured:
    return Measured(_samples(folder)["wrong"])
