"""Checkpoints of a member's training: one safetensors file, replaced whole, no pickle."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wmsched.base.errors import BundleError
from wmsched.base.files import atomic_open

KEY = "wmsched"  # of the header, in the file's metadata
REMEDY = "delete it to start anew"


@dataclass
class Checkpoint:
    """How far a training is.

    Attributes
    ----------
    step : finished steps
    losses : of the steps since the last held-out score
    best_score : held-out; minus infinity before the first
    best : weights of the best score, None before the first
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    best_score: float = -math.inf
    best: dict[str, Tensor] | None = field(default=None, repr=False)


def save_checkpoint(
    path: Path,
    identity: dict[str, Any],
    state: Checkpoint,
    *,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Write network, optimizer and progress to one file, all or nothing.

    Parameters
    ----------
    path : its folder is made if it is not there
    identity : JSON values of settings and data, without which the checkpoint is not to be used
    state, network, optimizer : what is written
    """
    from safetensors.torch import save

    moments = optimizer.state_dict()
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in (state.best or {}).items()}
    for index, values in moments["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
    progress = {
        "identity": identity,
        "groups": moments["param_groups"],
        "step": state.step,
        "losses": state.losses,
        "best_score": state.best_score,
    }
    content = save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
        metadata={KEY: json.dumps(progress)},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_open(path) as file:
        file.write(content)


def load_checkpoint(
    path: Path, identity: dict[str, Any], *, network: nn.Module, optimizer: torch.optim.Optimizer
) -> Checkpoint | None:
    """Restore network and optimizer in place; None where there is no checkpoint.

    Raises
    ------
    BundleError
        The file is damaged, or of other settings or data: each that differs is named.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            progress = json.loads((file.metadata() or {})[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        differ = _differences(progress["identity"], json.loads(json.dumps(identity)))
        if differ:
            raise BundleError(
                f"{path} is of a run with other settings or data: {'; '.join(differ)}; "
                f"choose another output, or {REMEDY}"
            )
        network.load_state_dict(_part(tensors, "network."))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _part(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": progress["groups"]})
        return Checkpoint(
            step=progress["step"],
            losses=progress["losses"],
            best_score=progress["best_score"],
            best=_part(tensors, "best.") or None,
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise BundleError(
            f"{path}: no usable checkpoint ({type(error).__name__}: {shortened(error)}); {REMEDY}"
        ) from error


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _differences(theirs: dict[str, Any], ours: dict[str, Any], place: str = "") -> list[str]:
    """Name each value that differs, by its path."""
    found = []
    for key in sorted({*theirs, *ours}):
        old, new = theirs.get(key), ours.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{place}{key}.")
        elif old != new:
            found.append(f"{place}{key} (was {old!r}, is {new!r})")
    return found


def shortened(error: Exception) -> str:
    """Return the beginning of an error's text in one line: PyTorch lists every weight that is missing."""
    return " ".join(str(error).split())[:200]
