"""Edit ``PYTHONPATH``, through which child processes find the same TVM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "PYTHONPATH"


def entries() -> list[str]:
    """Return the folders of the variable in order, without empty ones."""
    return [entry for entry in os.environ.get(VARIABLE, "").split(os.pathsep) if entry]


def export(folders: Sequence[str]) -> None:
    """Set the variable to these folders, without duplicates."""
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(folders))


def prepend(folder: Path) -> None:
    """Put a folder in front of the others."""
    export([str(folder), *entries()])
