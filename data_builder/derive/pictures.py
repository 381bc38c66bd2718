"""The picture of `wmsched-data stats --png`. Needs matplotlib (the extra `bench`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmsched.base.errors import EnvironmentProblem

if TYPE_CHECKING:
    from data_builder.derive.stats import WorkloadStats


def draw(rows: Sequence[WorkloadStats], path: Path, *, title: str) -> None:
    """Draw six views of a dataset and write them to `path` (its suffix chooses the format).

    Raises
    ------
    EnvironmentProblem
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentProblem("a picture needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(15, 8.5), layout="constrained")
    records = sum(row.records for row in rows)
    figure.suptitle(f"{title}: {records:,} records of {len(rows):,} workloads")
    views = (_spread, _best_median, _records, _steps, _errors, _repeated)
    for axes, view in zip(figure.subplots(2, 3).ravel(), views, strict=True):
        view(axes, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _spread(axes: Any, rows: Sequence[WorkloadStats]) -> None:
    measured = sorted((row.relative for row in rows if row.relative), key=lambda deciles: deciles[5])
    axes.set(title="latency over the best, each workload", xlabel="workloads, by median", ylabel="times best")
    if not measured:
        return
    deciles = np.array(measured)
    places = np.arange(len(deciles))
    axes.fill_between(places, deciles[:, 0], deciles[:, 10], alpha=0.2, label="all", step="mid")
    axes.fill_between(places, deciles[:, 1], deciles[:, 9], alpha=0.4, label="10 to 90 %", step="mid")
    axes.step(places, deciles[:, 5], where="mid", label="median")
    axes.set_yscale("log")
    axes.legend()


def _best_median(axes: Any, rows: Sequence[WorkloadStats]) -> None:
    found = np.array([(row.best, row.median) for row in rows if row.best > 0])
    axes.set(title="best against median", xlabel="best, seconds", ylabel="median, seconds")
    if len(found):
        axes.loglog(found[:, 0], found[:, 1], ".", alpha=0.6)
        ends = [found.min(), found.max()]
        axes.loglog(ends, ends, color="grey", linewidth=0.8)


def _records(axes: Any, rows: Sequence[WorkloadStats]) -> None:
    targets = Counter[str]()
    for row in rows:
        targets[row.target] += row.records
    axes.hist([row.records for row in rows], bins=30)
    axes.set(title=f"records a workload ({len(targets)} targets)", xlabel="records", ylabel="workloads")


def _steps(axes: Any, rows: Sequence[WorkloadStats]) -> None:
    counts = Counter[int]()
    for row in rows:
        counts.update(row.step_counts)
    axes.bar(list(counts), list(counts.values()), width=1.0)
    axes.set(title="steps a record", xlabel="steps", ylabel="records")


def _errors(axes: Any, rows: Sequence[WorkloadStats]) -> None:
    kinds = Counter(ok=sum(row.records - sum(row.errors.values()) for row in rows))
    for row in rows:
        kinds.update(row.errors)
    names = [name for name, _ in kinds.most_common()]
    bars = axes.barh(names[::-1], [kinds[name] for name in names[::-1]])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.margins(x=0.15)
    axes.set(title="what measuring ended in", xlabel="records")


def _repeated(axes: Any, rows: Sequence[WorkloadStats]) -> None:
    shares = [row.repeated / row.records for row in rows if row.records]
    axes.hist(shares, bins=np.linspace(0, 1, 21))
    axes.set(title="repeated schedules", xlabel="share of a workload's records", ylabel="workloads")
