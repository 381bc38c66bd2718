"""The table of `wmsched-data stats`."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table

from data_builder.base.console import _as_is

if TYPE_CHECKING:
    from data_builder.derive.stats import WorkloadStats


def show_stats(rows: Iterable[WorkloadStats]) -> None:
    """Print one row a workload, and the sums."""
    table = Table(show_footer=True)
    for name in ("workload", "network", "task"):
        table.add_column(name, no_wrap=True, max_width=28)
    for name in ("records", "failed", "steps", "best us", "median us", "worst/best", "replayed", "states"):
        table.add_column(name, justify="right", no_wrap=True)
    kinds: Counter[str] = Counter()
    workloads = records = replayed = states = 0
    for row in rows:
        failed = sum(row.errors.values())
        table.add_row(
            row.workload_id, row.network, row.desc.removeprefix("vm_mod_fused_"),
            str(row.records), str(failed),
            f"{row.steps_mean:.0f}-{row.steps_max}", _micro(row.best), _micro(row.median),
            f"{row.worst / row.best:.1f}" if row.best > 0 else "-", str(row.replayed), str(row.states),
        )  # fmt: skip
        kinds.update(row.errors)
        workloads += 1
        records += row.records
        replayed += row.replayed
        states += row.states
    footers = {
        0: f"{workloads}",
        3: f"{records}",
        4: f"{sum(kinds.values())}",
        9: f"{replayed}",
        10: f"{states}",
    }
    for column, text in footers.items():
        table.columns[column].footer = text
    console = _as_is()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = _as_is(width=180)  # a file or a pipe has no width that the table must be cut to
    console.print(table)
    for kind, number in sorted(kinds.items()):
        console.print(f"failed, {kind}: {number}")


def _micro(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e6:,.1f}"
