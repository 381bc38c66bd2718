"""Contexts in which a torch module computes: its precision, and evaluation mode on a device."""

from __future__ import annotations

import torch
from torch import nn


def autocast(device: str, precision: str) -> torch.autocast:
    """Return a context that computes matrix products in ``precision``: "float32", "bfloat16" or "auto"."""
    if precision not in ("float32", "bfloat16", "auto"):
        raise ValueError(f"precision={precision!r} is none of float32, bfloat16, auto")
    kind = torch.device(device).type
    if precision == "auto":
        fast = torch.cuda.is_bf16_supported() if kind == "cuda" else _fast_on_processor()
        precision = "bfloat16" if fast else "float32"
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def _fast_on_processor() -> bool:
    told = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # a name of torch's own, which may go
    return bool(told()) if told is not None else False


class Evaluating:
    """Evaluation mode on a device, and back to the mode before."""

    def __init__(self, module: nn.Module, device: str) -> None:
        self.module, self.device = module, device

    def __enter__(self) -> None:
        self.was_training = self.module.training
        self.module.eval().to(self.device)

    def __exit__(self, *_: object) -> None:
        self.module.train(self.was_training)
