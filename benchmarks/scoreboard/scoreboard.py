"""`python -m benchmarks.scoreboard`: the score board, from committed lines.

It has every figure that an issue or the README names. Without an option it is printed, with what is asked
of each figure. `--write` writes
benchmarks/results/figures.json, which a test compares. `registry` has the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scoreboard.architectures import ARCHITECTURES
from benchmarks.scoreboard.figure import RESULTS, ROOT, Figure, Part, is_met
from benchmarks.scoreboard.first_choices import FIRST_CHOICES
from benchmarks.scoreboard.gpu import GPU
from benchmarks.scoreboard.graphs import GRAPHS
from benchmarks.scoreboard.operators import OPERATORS
from benchmarks.scoreboard.registry import BOARD, TABLES
from benchmarks.scoreboard.regressions import REGRESSIONS
from benchmarks.scoreboard.whole_models import WHOLE_MODELS

FILE = RESULTS / "figures.json"
FIGURES = (*TABLES, *WHOLE_MODELS, *FIRST_CHOICES, *OPERATORS, *ARCHITECTURES, *REGRESSIONS, *GPU, *GRAPHS)


def board(figures: Sequence[Figure] | None = None, root: Path = ROOT) -> list[dict[str, Any]]:
    """Rows of the figures whose lines are there, whole, in the registry's order.

    Raises
    ------
    ValueError
        Two figures have one name, a bound is none, or a figure's lines have nothing to measure.
    """
    figures = FIGURES if figures is None else figures
    twice = [name for name, count in Counter(figure.name for figure in figures).items() if count > 1]
    if twice:
        raise ValueError(f"more than one figure is called {twice[0]}: give each a name of its own")
    rows = []
    for figure in figures:
        if figure.is_there(root):
            with contextlib.suppress(Part):
                rows.append(figure.row(root))
    return rows


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The file's text: a row a line, so that a change shows as one."""
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def shown(row: dict[str, Any]) -> str:
    """A row for people: name, number, interval, bound and whether it is met."""
    interval = "" if row["low"] is None else f" ({row['low']:.4g} to {row['high']:.4g})"
    verdict = {None: "", True: f"  {row['asked']}: met", False: f"  {row['asked']}: SHORT"}
    return f"{row['name']:64} {row['measured']:.4g}{interval}{verdict[is_met(row['asked'], row['measured'])]}"


def main(argv: list[str] | None = None) -> int:
    """Print or write the board; the exit code is 2 where that fails."""
    parser = argparse.ArgumentParser(prog=BOARD, description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--write", action="store_true", help=f"write {FILE}")
    options = parser.parse_args(argv)
    try:
        rows = board()
        if options.write:
            (ROOT / FILE).write_text(text(rows), encoding="utf-8")
            print(f"{FILE}: {len(rows)} figures")
        else:
            print("\n".join(map(shown, rows)))
    except (ValueError, OSError) as error:
        print(f"scoreboard: {error}", file=sys.stderr)
        return 2
    return 0
