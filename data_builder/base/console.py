"""What the commands show on a terminal: a progress bar on standard error, totals on standard output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    pass


SHOWN = 50  # bad lines; a broken log may have a million


class ConsoleReport:
    """Progress bar and messages on standard error; see `build.Report`."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self._task: Any = None
        self._problems = 0

    def __enter__(self) -> ConsoleReport:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def problem(self, text: str) -> None:
        """Print a bad line as it is, for a hostile one may hold markup; of very many only the first."""
        self._problems += 1
        if self._problems <= SHOWN:
            self.console.print(text, markup=False, emoji=False)
        elif self._problems == SHOWN + 1:
            self.console.print("... and more: all of them will stand in problems.txt")

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, emoji=False)

    def start(self, what: str, total: int, done: int) -> None:
        """Show another bar."""
        self._task = self.progress.add_task(what, total=total, completed=done)

    def step(self, kind: str = "ok") -> None:
        """Move the bar."""
        self.progress.advance(self._task)


class CollectReport(ConsoleReport):
    """The live view of collecting: records a second, what failed by kind, time left."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[failed]}", markup=False),
            TimeElapsedColumn(), TimeRemainingColumn(elapsed_when_finished=True), console=self.console,
        )  # fmt: skip
        self._begin = time.monotonic()
        self._kinds: Counter[str] = Counter()

    def start(self, what: str, total: int, done: int) -> None:
        """Show another bar."""
        self._begin = time.monotonic()
        self._task = self.progress.add_task(what, total=total, completed=done, rate="", failed="")

    def step(self, kind: str = "ok") -> None:
        """Move the bar; `kind` is what measuring ended in."""
        self._kinds[kind] += 1
        rate = sum(self._kinds.values()) / max(1e-9, time.monotonic() - self._begin)
        failed = ", ".join(f"{name} {count}" for name, count in sorted(self._kinds.items()) if name != "ok")
        self.progress.update(
            self._task,
            advance=1,
            rate=f"{rate:.2f}/s",
            failed=f"failed: {failed}" if failed else "none failed",
        )


def show_totals(manifest: Mapping[str, Any], out: Path) -> None:
    """Print what a build counted."""
    totals = manifest["totals"]
    table = Table("", "count", title=str(out), title_justify="left")
    table.columns[1].justify = "right"
    names = {
        "lines": "lines read",
        "bad": "bad lines",
        "duplicates": "repeated lines left out",
        "excluded": "lines of excluded workloads",
        "records": "records",
        "workloads": "workloads",
        "steps": "steps",
        "replayed": "records with states",
        "replay_failed": "records that do not replay",
        "states": "distinct states",
    }
    for name, title in names.items():
        if name in totals:
            table.add_row(title, f"{totals[name]:,}")
    for kind, number in sorted(totals["errors_by_kind"].items()):
        table.add_row(f"  {kind}", f"{number:,}")
    console = _as_is()
    console.print(table)
    if totals["bad"] or totals["duplicates"] or totals.get("replay_failed"):
        console.print(f"each bad line with its reason: {out / 'problems.txt'}")


def _as_is(width: int | None = None) -> Console:
    """A terminal that shows paths and labels as they are: brackets and colons in them are no markup."""
    return Console(width=width, markup=False, emoji=False)
