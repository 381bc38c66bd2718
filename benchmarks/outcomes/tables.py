"""Table of a report as Markdown or HTML, and the format of its cells."""

from __future__ import annotations

import html
import math
import re
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes.outcomes import Outcome, middle
from benchmarks.plan import Line

Cells = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of short texts under a title. A cell may hold `**bold**` and `` `code` ``; `note` goes below."""

    title: str
    head: Cells
    rows: Sequence[Cells]
    note: str = ""
    level: int = 2

    def markdown(self) -> str:
        """Title, table and note in GitHub's Markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        parts = ["\n".join(f"| {' | '.join(line)} |" for line in lines)]
        if self.title:
            parts.insert(0, f"{'#' * self.level} {self.title}")
        return "\n\n".join([*parts, *([self.note] if self.note else [])])

    def html(self) -> str:
        """The same as a fragment of HTML."""
        head = "".join(f"<th>{inline(cell)}</th>" for cell in self.head)
        body = "\n".join(
            "<tr>" + "".join(f"<td>{inline(cell)}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        title = f"<h{self.level}>{inline(self.title)}</h{self.level}>\n" if self.title else ""
        note = f"\n<p class=note>{inline(self.note)}</p>" if self.note else ""
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
        return f"{title}<div class=scroll>{table}</div>{note}"


def inline(text: str) -> str:
    """The two marks of Markdown that cells use, as HTML; everything else is escaped."""
    text = html.escape(text.replace("\\*", "∗"), quote=False)
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text).replace("∗", "*")


def latency(cell: dict[int, Outcome], best: float) -> str:
    """Milliseconds, the median over seeds, with the mean spread; bold if it is `best` (seconds)."""
    if not cell:
        return ""
    seconds = middle(cell)
    spread = statistics.fmean(o.spread for o in cell.values())
    again = all(o.again for o in cell.values())
    text = f"{seconds * 1e3:.4g}" + (f" ±{100 * spread:.0f} %" if again else " *")
    return f"**{text}**" if seconds == best else text


def ratio(values: Iterable[float] | None) -> str:
    """The geometric mean of a task's speedups over seeds; "" for none."""
    return "" if values is None else f"{stats.geometric_mean(values):.2f}"


def mean(ratios: stats.Ratios) -> str:
    """The geometric mean over tasks, in bold."""
    return f"**{stats.geometric_mean(stats.by_task(ratios)):.2f}**" if ratios else ""


def interval(ratios: stats.Ratios) -> str:
    """The 95 % interval of the geometric mean."""
    if not ratios:
        return ""
    low, high = stats.confidence(ratios)
    return f"{low:.2f} to {high:.2f}"


def seeds(counts: Collection[int]) -> str:
    """Such as "1 seed", or "1 to 2 seeds" where some have more than others; at least one count."""
    least, most = min(counts), max(counts)
    return (f"{least} to " if least < most else "") + f"{most} seed{'s' if most > 1 else ''}"


def wins(ratios: stats.Ratios) -> str:
    """On how many of the tasks the speedup is above one."""
    return f"{sum(one > 1 for one in stats.by_task(ratios))} of {len(ratios)}" if ratios else ""


def rate(lines: Sequence[Line]) -> float:
    """Candidates scored a second in some runs; NaN where no time was spent on it."""
    seconds = sum(line.get("predict_seconds") or 0.0 for line in lines)
    return sum(line.get("candidates") or 0 for line in lines) / seconds if seconds > 0 else math.nan
