"""Charts of the report as inline SVG, in the page's own colours (CSS variables), light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["bar", "curve_chart", "roofline_chart", "stack"]

WIDTH, HEIGHT = 480, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 46
CACHE = 1 << 20  # bytes: what a core's second cache holds, or a part of it
RADII = (3.0, 16.0)  # of a function without a share of the time, and of one that is all of it


def bar(part: float, colour: str, title: str, tick: float | None = None) -> str:
    """A bar over `part` of its place, between 0 and 1, with a tick where its limit is."""
    mark = ""
    if tick is not None:
        at = f"{100 * min(max(tick, 0.0), 1.0):.2f}%"
        mark = f'<line class="tick" x1="{at}" x2="{at}" y1="0" y2="16"/>'
    return (
        f'<svg class="bar" width="100%" height="16" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>"
        f'<rect width="{100 * max(part, 0.0):.2f}%" height="12" y="2" rx="2" class="w-{colour}"/>{mark}</svg>'
    )


def stack(parts: Sequence[tuple[str, float, str]]) -> str:
    """One bar of several parts, as (colour, size, title), with two pixels between them."""
    whole = sum(size for _, size, _ in parts)
    found, at = [], 0.0
    for colour, size, title in parts:
        part = 100 * size / whole if whole else 0.0
        found.append(
            f'<rect x="{at:.3f}%" width="{part:.3f}%" height="26" class="w-{colour} gap">'
            f"<title>{escape(title)}</title></rect>"
        )
        at += part
    return f'<svg class="stack" width="100%" height="26" role="img">{"".join(found)}</svg>'


class _Axis:
    """One axis: from values to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float, *, logs: bool) -> None:
        self.low, self.high, self.start, self.end, self.logs = low, high, start, end, logs

    def at(self, value: float) -> float:
        """Pixels of a value; one beyond the axis is at its end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.logs:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten, or round numbers."""
        if self.logs:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**k for k in range(first, last + 1)]
        step = 10 ** math.floor(math.log10(self.high - self.low or 1.0))
        step *= next(k for k in (0.2, 0.5, 1.0, 2.0) if (self.high - self.low) / (step * k) <= 5 or k == 2.0)
        return [step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def _frame(x: _Axis, y: _Axis, x_title: str, y_title: str) -> str:
    lines = []
    for value in y.ticks():
        at = y.at(value)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in x.ticks():
        at = x.at(value)
        lines.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    base = HEIGHT - BOTTOM
    lines.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(
        f'<text class="title" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_title)}</text>'
    )
    lines.append(
        f'<text class="title" transform="translate(14 {(TOP + base) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>"
    )
    return "".join(lines)


def _svg(inner: str, label: str) -> str:
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}"'
    return f'<svg class="chart" {box}>{inner}</svg>'


def roofline_chart(found: Mapping[str, Any]) -> str:
    """Each function's speed over its operations a byte, under what this machine allows; "" without either."""
    machine = found["machine"]
    peak, memory = machine["gflops"], machine["memory"]
    rows = [row for row in found["functions"] if row["flops"] and row["bytes"] and row["gflops"]]
    if not rows or peak is None or memory is None:
        return ""
    cache = min(machine["bandwidth"], key=lambda pair: abs(math.log(pair[0] / CACHE)))[1]
    dense = [row["flops"] / row["bytes"] for row in rows]
    speeds = [row["gflops"] for row in rows]
    x = _Axis(_down(min(dense)), _up(max(*dense, peak / memory)), LEFT, WIDTH - RIGHT, logs=True)
    y = _Axis(_down(min(speeds)), _up(1.2 * peak), HEIGHT - BOTTOM, TOP, logs=True)
    parts = [_frame(x, y, "operations for each byte of arguments", "GFLOP/s")]
    roofs = [(memory, "roof", "memory"), *([(cache, "roof thin", "caches")] if cache > memory else [])]
    for rate, kind, name in roofs:
        bend, start = peak / rate, max(x.low, y.low / rate)
        points = [(start, min(peak, rate * start)), (min(max(bend, start), x.high), min(peak, rate * x.high))]
        if bend < x.high:
            points.append((x.high, peak))
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points)
        title = f"<title>{name}: {rate:.0f} GB/s</title>"
        parts.append(f'<polyline class="{kind}" points="{path}">{title}</polyline>')
    parts.append(
        f'<text class="note" x="{WIDTH - RIGHT - 4}" y="{y.at(peak) - 6:.1f}" text-anchor="end">'
        f"{peak:.0f} GFLOP/s; {', '.join(f'{name} {rate:.0f} GB/s' for rate, _, name in roofs)}</text>"
    )
    for row in sorted(rows, key=lambda row: -row["share"]):
        radius = RADII[0] + (RADII[1] - RADII[0]) * math.sqrt(max(row["share"], 0.0))
        across, up = x.at(row["flops"] / row["bytes"]), y.at(row["gflops"])
        waits = row["limit"]["waits"]
        title = f"{escape(row['what'])}: {row['gflops']:.1f} GFLOP/s, {100 * row['share']:.1f} %"
        parts.append(
            f'<circle cx="{across:.1f}" cy="{up:.1f}" r="{radius:.1f}" class="w-{waits} dot">'
            f"<title>{title}</title></circle>"
        )
    return _svg("".join(parts), "Functions under the machine's roofline")


def curve_chart(points: Sequence[Sequence[float]]) -> str:
    """The model's weighted latency in ms over trials, as steps; "" without two points."""
    if len(points) < 2:
        return ""
    times = [1e3 * seconds for _, seconds in points]
    low, high = min(times), max(times)
    room = 0.08 * (high - low or high)
    x = _Axis(0.0, points[-1][0], LEFT, WIDTH - RIGHT, logs=False)
    y = _Axis(max(0.0, low - room), high + room, HEIGHT - BOTTOM, TOP, logs=False)
    path = f"M{x.at(points[0][0]):.1f},{y.at(times[0]):.1f}"
    for (trial, _), value in zip(points[1:], times[1:]):
        path += f"H{x.at(trial):.1f}V{y.at(value):.1f}"
    last = points[-1][0]
    return _svg(
        _frame(x, y, "trials", "sum of functions alone, ms")
        + f'<path class="curve" d="{path}"/>'
        + f'<circle class="end" cx="{x.at(last):.1f}" cy="{y.at(times[-1]):.1f}" r="4"/>'
        + f'<text class="note" x="{WIDTH - RIGHT - 4}" y="{y.at(times[-1]) - 9:.1f}" text-anchor="end">'
        f"{times[-1]:.3g} ms after {last:g} trials</text>",
        "The search's curve",
    )


def _down(value: float) -> float:
    return float(10 ** math.floor(math.log10(value)))


def _up(value: float) -> float:
    return float(10 ** math.ceil(math.log10(value)))
