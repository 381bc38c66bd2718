"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wmsched.base.console import say

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["disturbed", "number", "print_report", "threads_of"]

HEAD = (
    "share",
    "ms",
    "calls",
    "us/call",
    "warm",
    "GFLOP/s",
    "GB/s",
    "limit",
    "threads",
    "waits for",
    "function",
)

APART = 1.15  # times its parts' medians, beyond which a whole run is said to be disturbed
SLOWER = 1.4  # times as long as when the library was built, likewise


def disturbed(found: Mapping[str, Any]) -> str:
    """Return that other programs disturb this machine, and how it is seen; "" where it is not."""
    whole, parts = found["profile"]["measured"], found["profile"]["seconds"]
    built = found["then"].get(found["library"]["build"])
    if built and parts > SLOWER * built:
        how = f"takes {parts / built:.1f} times as long as when it was built"
    elif whole > APART * parts:
        how = f"takes {whole / parts:.1f} times as long as its parts"
    else:
        return ""
    return f"other programs disturb this machine: a run {how}; repeat this when it is idle"


def print_report(console: Console, found: Mapping[str, Any], most: int = 0) -> None:
    """Functions, those that take longest first; `most` of them, or all; and what they come to."""
    shown = found["functions"][:most] if most else found["functions"]
    lines = [HEAD, *(_line(row) for row in shown)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEAD) - 1)]
    for line in lines:
        say(console, "  ".join([*(text.rjust(width) for text, width in zip(line, widths)), line[-1]]))
    left = found["functions"][len(shown) :]
    if left:
        say(console, f"and {len(left)} more: {1e3 * sum(row['seconds'] for row in left):.3f} ms")
    _print_whole(console, found)


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    each = 1e6 / row["calls"]
    limit = row["limit"]["seconds"]
    return (
        f"{100 * row['share']:.1f} %",
        f"{1e3 * row['seconds']:.3f}",
        str(row["calls"]),
        f"{row['seconds'] * each:.1f}",
        number(row["warm"], ".1f", each),
        number(row["gflops"], ".1f"),
        number(row["gbs"], ".1f"),
        number(limit, ".1f", each),
        threads_of(row),
        row["limit"]["waits"],
        f"{row['what']}  [{row['name']}]",
    )


def _print_whole(console: Console, found: Mapping[str, Any]) -> None:
    whole, machine = found["profile"], found["machine"]
    low, high = (1e3 * value for value in whole["spread"])
    functions = 1e3 * sum(row["seconds"] for row in found["functions"])
    say(
        console,
        f"\nwhole model {1e3 * whole['seconds']:.3f} ms: functions {functions:.3f}, the virtual machine's "
        f"own {1e3 * whole['machine']:.3f}, between them {1e3 * whole['rest']:.3f}; runs took "
        f"{1e3 * whole['measured']:.3f} ({whole['rounds']}, tenth to ninetieth percentile {low:.3f} to "
        f"{high:.3f})",
    )
    if why := disturbed(found):
        say(console, why)
    parts = (f"{name} {1e3 * seconds:.3f} ms" for name, seconds in found["waits"].items())
    say(console, f"waits for: {', '.join(parts)}")
    say(
        console,
        f"this machine, {machine['threads']} threads: {number(machine['gflops'], '.0f')} GFLOP/s, "
        f"{number(machine['memory'], '.1f')} GB/s out of the {whole['memory'] / 1e6:.1f} MB that a run "
        "touches, "
        f"{number(machine['handover'], '.1f', 1e6)} us to hand a loop over",
    )
    if found["why_unknown"]:
        say(console, f"operations are not known: {found['why_unknown']}")
    for name, seconds in ((found["compared"] or {}).get("seconds") or {}).items():
        say(console, f"in turns: {name} {1e3 * seconds:.3f} ms")
    for name, why in ((found["compared"] or {}).get("missing") or {}).items():
        say(console, f"{name}: {why}")


def number(value: float | None, form: str, times: float = 1.0) -> str:
    """A number for a reader; "-" where it is not known."""
    return "-" if value is None else format(value * times, form)


def threads_of(row: Mapping[str, Any]) -> str:
    """How many of a function's parallel loops several threads ran."""
    loops, shared = row["loops"], row["shared"]
    return "-" if not loops else "all" if shared == loops else f"{shared}/{loops}"
