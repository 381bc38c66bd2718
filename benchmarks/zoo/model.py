"""Model of an architecture with inputs that it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class NoModel(Exception):
    """PyTorch runs no small model of an architecture."""


@dataclass(frozen=True)
class Example:
    """Model with inputs by name, and its own name where it is one of several of a family."""

    model: Any
    inputs: dict[str, Any]
    name: str = ""
