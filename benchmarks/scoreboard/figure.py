"""Figure of the score board: its name, its target, and its measurement."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = Path("benchmarks/results")  # of the repository
BOUND = re.compile(r"(min|max) (-?\d+(?:\.\d+)?)")
SIGNIFICANT_DIGITS = 4  # of a number on the board: sums differ in their last digits between processors


class Measured(NamedTuple):
    """A number and its interval, None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


class Part(ValueError):
    """Lines are a part of a list, and the figure is of all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that an issue or the README names.

    Attributes
    ----------
    name : str
        Words joined by "." from the general to the particular, once on the board.
    lines : tuple of str
        Committed files in `RESULTS` that it is worked out from.
    command : str
        What prints it.
    measure : function of a folder
        Works it out from the files in that folder. ValueError if they have nothing of the kind; `Part` keeps
        the figure off the board.
    asked : str
        "min X" or "max X"; "" where no bound is set.
    """

    name: str
    lines: tuple[str, ...]
    command: str
    measure: Callable[[Path], Measured]
    asked: str = ""

    def is_there(self, root: Path = ROOT) -> bool:
        """Whether all its files are in a checkout."""
        return all((root / RESULTS / name).is_file() for name in self.lines)

    def row(self, root: Path = ROOT) -> dict[str, Any]:
        """Its row on the board.

        Raises
        ------
        ValueError
            The bound is none, or the lines have nothing to measure.
        Part
            The lines are a part of what it is of.
        """
        try:
            parse_bound(self.asked)
            measured = self.measure(root / RESULTS)
        except Part:
            raise
        except ValueError as error:
            raise ValueError(f"figure {self.name}: {error}") from error
        return {
            "name": self.name,
            "asked": self.asked,
            "measured": _rounded(measured.value),
            "low": _rounded(measured.low),
            "high": _rounded(measured.high),
            "lines": [(RESULTS / name).as_posix() for name in self.lines],
            "command": self.command,
        }


def parse_bound(asked: str) -> tuple[str, float] | None:
    """("min" or "max", the number); None for "". ValueError for what is no bound."""
    if not asked:
        return None
    found = BOUND.fullmatch(asked)
    if found is None:
        raise ValueError(f'{asked!r} is no bound: write "min 1.15", "max 0.3" or ""')
    return found.group(1), float(found.group(2))


def is_met(asked: str, measured: float) -> bool | None:
    """Whether a number is within its bound; None where no bound is set."""
    bound = parse_bound(asked)
    if bound is None:
        return None
    kind, limit = bound
    return measured >= limit if kind == "min" else measured <= limit


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
