"""Figures of a GPU's schedules that need no GPU: what compiles, what computes the right numbers, and how fast
candidates are drawn and ranked.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu.attentions import ATTENTIONS, SMALL_ATTENTIONS
from benchmarks.gpu.compile_kinds import BOARDS, is_expected, is_whole
from benchmarks.gpu.programs import EVERY, EVERY_SMALL
from benchmarks.gpu.right_kinds import ARCH, is_right
from benchmarks.operators.lines import read
from benchmarks.scoreboard import registry
from benchmarks.scoreboard.figure import Figure, Measured

COMPILES, RIGHT, DRAWN = "gpu-compiles.jsonl", "gpu-right.jsonl", "gpu-drawn.jsonl"
GPU: list[Figure] = []
figure = functools.partial(registry.figure, into=GPU)


def _share(
    lines: list[dict[str, Any]],
    wanted: Iterable[tuple[Any, str]],
    holds: Callable[[Any, list[dict[str, Any]]], bool],
) -> Measured:
    """Kinds and architectures of which it holds, over all that are wanted: one without a line is short."""
    found = [
        holds(kind, [line for line in lines if (line["kind"], line["arch"]) == (kind.name, arch)])
        for kind, arch in wanted
    ]
    return Measured(sum(found) / len(found))


@figure(
    "gpu.kinds_compiled_share",
    COMPILES,
    asked="min 1",
    command=f"python -m benchmarks.gpu.compile_kinds --schedules 1 --out benchmarks/results/{COMPILES}",
)
def _compiled(folder: Path) -> Measured:
    pairs = [(kind, arch) for arch in BOARDS for kind in (*EVERY, *ATTENTIONS) if is_expected(kind, arch)]
    return _share(read(folder / COMPILES), pairs, is_whole)


@figure(
    "gpu.kinds_right_share",
    RIGHT,
    asked="min 1",
    command=f"python -m benchmarks.gpu.right_kinds --out benchmarks/results/{RIGHT}",
)
def _right(folder: Path) -> Measured:
    return _share(
        read(folder / RIGHT), [(kind, ARCH) for kind in (*EVERY_SMALL, *SMALL_ATTENTIONS)], is_right
    )


@figure(
    "gpu.candidates_a_second",
    DRAWN,
    command=f"python -m benchmarks.gpu.drawn_speed --out benchmarks/results/{DRAWN}",
)
def _drawn(folder: Path) -> Measured:
    """Rows of decisions that are read and ranked in a second; of the kinds the median, least and most."""
    lines = {line["kind"]: line for line in read(folder / DRAWN)}
    if not lines or not all(line["equal"] for line in lines.values()):
        raise ValueError("its rows are not read as TVM makes the schedules")
    speeds = [float(line["rows_a_second"]) for line in lines.values()]
    return Measured(statistics.median(speeds), min(speeds), max(speeds))
