"""Live table of a tuning run: task, trials, best speed, best latency, time left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text


@dataclass
class Line:
    """One task's part of the table."""

    name: str
    flop_ct: float
    weight: float = 1.0
    trials: int = 0
    failed: int = 0
    best: float = math.inf  # seconds

    @property
    def gflops(self) -> float:
        """Best speed so far, in 1e9 floating-point operations a second; 0 before the first good candidate."""
        return self.flop_ct / self.best / 1e9


@dataclass
class LiveTable:
    """Shows the run on a terminal as a table in place; elsewhere as one line a batch.

    Parameters
    ----------
    lines : dict of workload key to Line
        In the order of display; what an earlier run measured is already in them.
    budget : int or None
        Trials of this run; None where time alone ends it.
    until : float or None
        When it ends at the latest, by `clock`.
    console : Console
    clock : callable
        Seconds; a test brings its own.
    """

    lines: dict[str, Line]
    budget: int | None
    console: Console = field(default_factory=Console)
    clock: Callable[[], float] = time.monotonic
    until: float | None = None

    def __post_init__(self) -> None:
        self.done = 0
        self.current: str | None = None
        self._start = self.clock()
        self._live: Live | None = None

    def __enter__(self) -> LiveTable:
        self._start = self.clock()
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(self.render(), console=self.console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.current = None
        if self._live is not None:
            self._live.update(self.render())
            self._live.stop()
            self._live = None

    def started(self, key: str) -> None:
        """The task `key` is being searched."""
        self.current = key
        self._refresh()

    def measured(self, key: str, seconds: Sequence[float]) -> None:
        """A batch of candidates of the task `key` was measured; NaN is a failed one."""
        line = self.lines[key]
        good = [value for value in seconds if math.isfinite(value) and value > 0]
        line.trials += len(seconds)
        line.failed += len(seconds) - len(good)
        line.best = min([line.best, *good])
        self.done += len(seconds)
        if self._live is None:
            self.console.print(
                f"{self._trials()}, {line.name}: best {latency(line.best)}, "
                f"{speed(line)}, {self.time_left()} left",
                highlight=False,
                markup=False,
            )
        self._refresh()

    def corrected(self, key: str, best: float) -> None:
        """The best time of the task `key` was corrected, in seconds."""
        self.lines[key].best = best
        self._refresh()

    def time_left(self) -> str:
        """Estimated from this run's own pace, at most to its end; "-" before the first batch."""
        left = [] if self.until is None else [max(0.0, self.until - self.clock())]
        if self.done and self.budget is not None:
            pace = (self.clock() - self._start) / self.done
            left.append(pace * max(0, self.budget - self.done))
        return duration(min(left)) if left else "-"

    def render(self) -> Group:
        """The table and its summary, no taller than the console."""
        table = Table(box=None, pad_edge=False)
        table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=1)
        for heading in ("trials", "failed", "best GFLOP/s", "best latency"):
            table.add_column(heading, justify="right", no_wrap=True)
        shown = self._shown()
        for key in shown:
            line = self.lines[key]
            table.add_row(
                Text(line.name),
                str(line.trials),
                str(line.failed) if line.failed else "",
                speed(line).removesuffix(" GFLOP/s"),
                latency(line.best),
                style="bold" if key == self.current else "",
            )
        hidden = len(self.lines) - len(shown)
        total = sum(line.best * line.weight for line in self.lines.values())
        summary = f"{self._trials()}, {duration(self.clock() - self._start)} so far, "
        summary += f"{self.time_left()} left"
        if len(self.lines) > 1 and math.isfinite(total):
            summary += f"; weighted total {latency(total)}"
        if hidden:
            summary += f"; {hidden} more tasks not shown"
        return Group(table, Text(summary, style="dim"))

    def _trials(self) -> str:
        return f"{self.done} trials" if self.budget is None else f"{self.done}/{self.budget} trials"

    def _shown(self) -> list[str]:
        """As many tasks as fit, the current one among them."""
        room = max(3, self.console.height - 4) if self.console.is_terminal else len(self.lines)
        keys = list(self.lines)
        start = 0
        if self.current in keys:
            start = max(0, min(keys.index(self.current) - room // 2, len(keys) - room))
        return keys[start : start + room]

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self.render())


def latency(seconds: float) -> str:
    """Seconds for a reader: three digits and the unit that suits them; "-" for none."""
    if not math.isfinite(seconds):
        return "-"
    if seconds >= 1:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def speed(line: Line) -> str:
    """Best speed for a reader; "-" for none."""
    return f"{line.gflops:.2f} GFLOP/s" if math.isfinite(line.best) else "-"


def duration(seconds: float) -> str:
    """``0:42`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
