"""PNG plots of a report: speedups of each task as bars, and best latency against wall time."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.outcomes import Outcomes, Setting
from benchmarks.ratios import best_at, by_task, geometric_mean

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
        for ours in data.ours
        for base in data.baselines
        if (ratios := data.ratios(base, setting, ours, setting))
    ]
    if not panels:
        raise ValueError(
            "no task has been tuned with both one of our methods and a baseline at the same budget"
        )
    height = max(2.2, 0.24 * len(data.tasks) + 1.0)
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
    setting = usual[-1]
    tasks = [task for task in data.tasks if any(data.of(task, method, setting) for method in data.methods)]
    columns = min(COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    size = (max(6.0, 3.4 * columns), 2.5 * rows + 0.6)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis, task in zip(axes.flat, tasks):
        for method in data.methods:
            _curve(axis, data, task, method, setting)
        axis.set_title(data.titles[task] or task, fontsize=9)
        axis.set_yscale("log")
        axis.tick_params(labelsize=7)
        axis.tick_params(which="minor", labelsize=5)
    for axis in axes.flat[len(tasks) :]:
        axis.axis("off")
    handles: dict[str, object] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncol=len(handles), fontsize=9)
    figure.supxlabel("seconds of search", fontsize=9)
    figure.supylabel(f"best latency so far, ms ({setting})", fontsize=9)
    figure.savefig(path, dpi=DOTS)
    pyplot.close(figure)


def _curve(axis: object, data: Outcomes, task: str, method: str, setting: Setting) -> None:
    curves = [outcome.line["curve"] for outcome in data.of(task, method, setting).values()]
    if not curves:
        return
    start = max(points[0][1] for points in curves)  # where every seed has a schedule
    end = max(points[-1][1] for points in curves)
    times = [t for t in sorted({point[1] for points in curves for point in points}) if t >= start]
    best = [1e3 * geometric_mean(best_at(points, t) for points in curves) for t in times]
    axis.step([*times, end], [*best, best[-1]], where="post", label=method, linewidth=1.3)  # type: ignore[attr-defined]
