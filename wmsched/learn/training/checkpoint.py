"""Checkpoints that survive a kill: one safetensors file with atomic writes, no pickle."""

from __future__ import annotations

import hashlib
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from wmsched.base.errors import BundleError
from wmsched.base.files import atomic_open, atomic_path
from wmsched.model.weights import METADATA_KEY, read_header, read_weights, usable

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset

REMEDY = "delete it to start anew"


def save_checkpoint(
    path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any]
) -> None:
    """Write weights, optimizer state and ``progress`` (JSON values) to one file, atomically."""
    from safetensors.torch import save_file

    state = optimizer.state_dict()
    tensors = {f"model.{name}": tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    for index, values in state["state"].items():
        for name, value in values.items():
            tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value).contiguous()
    header = json.dumps({"progress": progress, "groups": state["param_groups"]})
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as fresh:
        save_file(tensors, fresh, metadata={METADATA_KEY: header})


def load_checkpoint(path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore weights and optimizer state in place and return ``progress``."""
    with usable(path, "checkpoint", REMEDY):
        header, tensors = read_weights(path)
        model.load_state_dict({name[6:]: t for name, t in tensors.items() if name.startswith("model.")})
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, field = name.split(".", 2)
                state.setdefault(int(index), {})[field] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": header["groups"]})
        progress: dict[str, Any] = header["progress"]
    return progress


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the ``settings`` of a checkpoint; None if there is no checkpoint."""
    if not path.is_file():
        return None
    with usable(path, "checkpoint", REMEDY):
        settings: dict[str, Any] = read_header(path)["progress"]["settings"]
    return settings


def check_settings(path: Path, *, ours: dict[str, Any]) -> None:
    """Raise BundleError if a checkpoint has other settings or data.

    Raises
    ------
    BundleError : names each setting that differs
    """
    theirs = read_settings(path) or {}
    ours = json.loads(json.dumps(ours))
    differ = [f"{k} (was {theirs.get(k)!r}, is {v!r})" for k, v in ours.items() if theirs.get(k) != v]
    if differ:
        raise BundleError(
            f"{path} is of a run with other settings: {'; '.join(differ)}; "
            "choose another output, or delete it to start anew (resume=False)"
        )


def data_digest(dataset: Dataset) -> str:
    """Return a short hash of a dataset's sources and tables.

    The same logs give other states if more records are replayed, or by another TVM.
    """
    files = dataset.manifest.get("files", {})  # format 1 has none
    tables = sorted((path, entry["sha256"]) for path, entry in files.items() if path.endswith(".parquet"))
    whole = repr((sorted(dataset.fingerprint().items()), tables))
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def report(history: list[dict[str, Any]], step: int, clock: Clock, losses: list[float]) -> dict[str, Any]:
    """Return a metrics line: epoch, step, seconds since the run began, mean loss since the last line."""
    loss = sum(losses) / len(losses)
    return {"epoch": len(history) + 1, "step": step, "seconds": round(clock.seconds, 1), "loss": loss}


def write_metrics(path: Path, history: list[dict[str, Any]]) -> None:
    """Write one JSON line an epoch, atomically; non-finite numbers become null."""
    with atomic_open(path) as file:
        file.writelines(json.dumps(_finite(row), allow_nan=False).encode() + b"\n" for row in history)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


class Clock:
    """Progress of a run, by steps, or by time if a budget in minutes ends it sooner."""

    def __init__(self, *, steps: int, minutes: float | None) -> None:
        if minutes is not None and not minutes > 0:
            raise ValueError(f"minutes={minutes} of training must be above 0, or None for no limit")
        self.steps, self.minutes = steps, minutes
        self.before = 0.0  # seconds of earlier, interrupted runs
        self.restart()

    def restart(self) -> None:
        """Start the clock: reading and tokenizing the data is not part of the budget.

        A busy machine could otherwise spend the budget there and save an untrained model.
        """
        self.start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return seconds spent, earlier interrupted runs included."""
        return self.before + time.monotonic() - self.start

    def progress(self, step: int) -> float:
        """Return the finished share; 1 means stop."""
        share = step / self.steps if self.steps else 1.0
        if self.minutes is not None:
            share = max(share, self.seconds / max(60 * self.minutes, 1e-9))
        return min(share, 1.0)


def learning_rate(progress: float, step: int, *, peak: float, warmup: int) -> float:
    """Return the learning rate: linear warm-up over ``warmup`` steps, then cosine from ``peak`` to peak /
    20."""
    cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))
    return peak * cosine * min(1.0, (step + 1) / max(1, warmup))
