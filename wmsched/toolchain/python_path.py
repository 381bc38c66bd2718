"""``PYTHONPATH``, by which the processes that this one starts find its TVM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

NAME = "PYTHONPATH"


def entries() -> list[str]:
    """Its folders, in order, without empty ones."""
    return [entry for entry in os.environ.get(NAME, "").split(os.pathsep) if entry]


def export(folders: Sequence[str]) -> None:
    """Set it, each folder once."""
    os.environ[NAME] = os.pathsep.join(dict.fromkeys(folders))


def prepend(folder: Path) -> None:
    """Put a folder before the others."""
    export([str(folder), *entries()])
