"""Figures of architectures of transformers and timm, from committed lines of a whole list."""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.operators.lines import read
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured, Part
from benchmarks.zoo import table

ARCHITECTURES: list[Figure] = []
figure = functools.partial(registry.figure, into=ARCHITECTURES, command="python -m benchmarks.zoo.table")


def _share(folder: Path, library: str) -> Measured:
    """Architectures that are right over those that torch.export takes; of all that the library lists."""
    read_lines = read(folder / table.LINES[library].name)
    lines = table.whole(read_lines, library)
    if not lines:
        raise Part(f"its {len(read_lines)} lines are a part of the list of {library}: a share is of all")
    return Measured(table.share(table.tally(lines, library)))


@figure("zoo.timm_share", table.LINES["timm"].name, asked="min 0.95")
def _timm(folder: Path) -> Measured:
    return _share(folder, "timm")


@figure("zoo.transformers_share", table.LINES["transformers"].name, asked="min 0.9")
def _transformers(folder: Path) -> Measured:
    return _share(folder, "transformers")
