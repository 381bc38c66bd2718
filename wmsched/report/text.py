"""The table of a model's functions on a terminal, and the same as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wmsched.base.console import say
from wmsched.report.profiler import Profile

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["as_json", "print_table"]


def as_json(found: Profile) -> dict[str, Any]:
    """All numbers, in seconds, operations and bytes; null for what is not known."""
    rows = [
        asdict(row) | {"share": found.share(row), "gflops": row.gflops, "gbs": row.gbs} for row in found.rows
    ]
    return {key: _known(value) for key, value in (asdict(found) | {"rows": rows}).items()}


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    return [_known(one) for one in value] if isinstance(value, (list, tuple)) else value


def print_table(console: Console, found: Profile, most: int = 0) -> None:
    """Functions, those that take longest first; `most` of them, or all."""
    shown = found.rows[:most] if most else found.rows
    lines = [("share", "ms", "calls", "us/call", "warm", "GFLOP/s", "GB/s", "threads", "function")]
    for row in shown:
        each = 1e6 / row.calls
        lines.append(
            (
                f"{100 * found.share(row):.1f} %",
                f"{1e3 * row.seconds:.3f}",
                str(row.calls),
                f"{row.seconds * each:.1f}",
                _number(row.warm * each, ".1f"),
                _number(row.gflops, ".1f"),
                _number(row.gbs, ".1f"),
                _threads(row.loops, row.shared),
                f"{row.what}  [{row.name}]",
            )
        )
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]) - 1)]
    for line in lines:
        say(console, "  ".join([*(text.rjust(width) for text, width in zip(line, widths)), line[-1]]))
    if len(shown) < len(found.rows):
        left = found.rows[len(shown) :]
        say(console, f"and {len(left)} more: {1e3 * sum(row.seconds for row in left):.3f} ms")
    low, high = (1e3 * value for value in found.spread)
    functions = 1e3 * sum(row.seconds for row in found.rows)
    say(
        console,
        f"\nwhole model {1e3 * found.seconds:.3f} ms ({found.rounds} runs, tenth to ninetieth percentile "
        f"{low:.3f} to {high:.3f}): functions {functions:.3f}, the virtual machine's own "
        f"{1e3 * found.machine:.3f}, between them {1e3 * found.rest:.3f}",
    )


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _threads(loops: int, shared: int) -> str:
    """How many of a function's parallel loops several threads ran."""
    return "-" if not loops else "all" if shared == loops else f"{shared}/{loops}"
