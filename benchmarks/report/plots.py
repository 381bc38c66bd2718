"""PNG plots of a report: speedups of each task as bars, and best latency against wall time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.outcomes.ratios import best_at, by_task, geometric_mean

COLUMNS = 4
DOTS = 130


def draw(data: Outcomes, path: Path) -> list[Path]:
    """Draw what there is data for, the curves as `<stem>-time.png`; the files that were written."""
    import matplotlib

    matplotlib.use("Agg")  # there may be no display
    written = []
    if data.baselines and data.all:
        speedup_bars(data, path)
        written.append(path)
    if data.all:
        curves = path.with_name(f"{path.stem}-time{path.suffix}")
        time_curves(data, curves)
        written.append(curves)
    return written


def speedup_bars(data: Outcomes, path: Path) -> None:
    """One panel a setting and pair of methods: bars of baseline/ours on a log2 scale, sorted."""
    from matplotlib import pyplot

    panels = [
        (setting, ours, base, ratios)
        for setting in data.settings
        for ours, base in data.pairs()
        if (ratios := data.ratios(base, setting, ours, setting))
    ]
    if not panels:
        raise ValueError(
            "no task has been tuned with both one of our methods and a baseline at the same budget"
        )
    height = max(2.2, 0.24 * len(data.representatives) + 1.0)
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(8, height * len(panels)), squeeze=False)
    for axis, (setting, ours, base, ratios) in zip(axes[:, 0], panels):
        values = sorted(zip(by_task(ratios), ratios), reverse=False)
        names = [f"{data.titles[task]} ({task})" if data.titles[task] else task for _, task in values]
        bars = [math.log2(value) for value, _ in values]
        axis.barh(names, bars, color=["tab:green" if bar > 0 else "tab:red" for bar in bars])
        ticks = range(math.floor(min(*bars, 0)), math.ceil(max(*bars, 0)) + 1)
        axis.set_xticks(list(ticks), [f"{2.0**tick:g}x" for tick in ticks])
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(f"{ours} over {base}, {setting}: {geometric_mean(by_task(ratios)):.2f}x", fontsize=10)
        axis.tick_params(axis="y", labelsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=DOTS)
    pyplot.close(figure)


def time_curves(data: Outcomes, path: Path) -> None:
    """One panel a task: best latency so far against wall time at the largest budget, the mean over seeds."""
    from matplotlib import pyplot

    usual = [setting for setting in data.settings if setting.usual] or data.settings
    figure = curves(data, usual[-1], axis=1)
    figure.savefig(path, dpi=DOTS)
    pyplot.close(figure)


def grid(pyplot: Any, panels: int, *, height: float = 2.5) -> tuple[Any, Any]:
    """A figure with so many panels, four to a row; the places left over are empty."""
    columns = min(COLUMNS, panels)
    rows = math.ceil(panels / columns)
    size = (max(6.0, 3.4 * columns), height * rows + 0.6)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[panels:]:
        axis.axis("off")
    return figure, axes


def curves(data: Outcomes, setting: Setting, *, axis: int) -> Any:
    """One panel a representative: best latency so far against trials (`axis` 0) or seconds (1)."""
    from matplotlib import pyplot

    methods = [m for m in data.methods if m not in data.ablations]
    tasks = [t for t in data.representatives if any(data.of(t, method, setting) for method in methods)]
    figure, axes = grid(pyplot, max(1, len(tasks)))
    for panel, task in zip(axes.flat, tasks):
        for number, method in enumerate(methods):
            _curve(panel, data, task, method, setting, axis, f"C{number % 10}")
        panel.set_title(data.titles[task] or task, fontsize=9)
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        panel.yaxis.set_minor_formatter(lambda y, _: f"{y:.2g}")
        panel.tick_params(labelsize=7)
        panel.tick_params(which="minor", labelsize=5)
    handles: dict[str, object] = {}
    for panel in axes.flat:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncol=len(handles), fontsize=9)
    figure.supxlabel(("trials", "seconds of search")[axis], fontsize=9)
    figure.supylabel(f"best latency so far, ms ({setting})", fontsize=9)
    return figure


def _curve(
    panel: Any, data: Outcomes, task: str, method: str, setting: Setting, axis: int, colour: str
) -> None:
    found = [outcome.line["curve"] for outcome in data.of(task, method, setting).values()]
    if not found:
        return
    start = max(points[0][axis] for points in found)  # where every seed has a schedule
    end = max(points[-1][axis] for points in found)
    places = [x for x in sorted({point[axis] for points in found for point in points}) if x >= start]
    best = [1e3 * geometric_mean(best_at(points, x, axis=axis) for points in found) for x in places]
    panel.step([*places, end], [*best, best[-1]], where="post", label=method, linewidth=1.3, color=colour)
