"""The paper's figures for this machine, drawn from the outcomes: SVG texts for the HTML page.

Each function of `FIGURES` gives the figure it is named for, or nothing where the lines have no data for it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.methods import META
from benchmarks.outcomes import paper, weighted
from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.report import against, plots, whole

Axes = Any  # matplotlib's, which is imported only when something is drawn
FASTER, SLOWER, PAPER = "#2a8f5b", "#c0504d", "#8a8a8a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing with its title and what it shows."""

    title: str
    caption: str
    svg: str


def draw(data: Outcomes) -> list[Figure]:
    """Every figure that there is data for, in the paper's order."""
    import matplotlib

    matplotlib.use("Agg")  # there may be no display
    settings = {"svg.fonttype": "none", "svg.hashsalt": "wmsched", "font.size": 9}
    with matplotlib.rc_context(settings):
        return [figure for make in FIGURES for figure in make(data)]


def _svg(figure: Any) -> str:
    from matplotlib import pyplot

    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})  # the same lines draw the same bytes
    pyplot.close(figure)
    return stream.getvalue()


def _ours(data: Outcomes) -> list[str]:
    return [method for method in data.ours if not method.startswith(META)]


def means(data: Outcomes) -> Iterator[Figure]:
    """The mean speedups and the paper's, as points with intervals."""
    from matplotlib import pyplot

    found = [v for v in against.verdicts(data) if v.ratios]
    if not found:
        return
    figure, axis = pyplot.subplots(figsize=(9, 0.42 * len(found) + 1.1), layout="constrained")
    for place, v in enumerate(reversed(found)):
        low, high = stats.confidence(v.ratios)
        colour = FASTER if v.value >= v.claim.speedup else SLOWER
        axis.plot([low, high], [place, place], color=colour, linewidth=2)
        axis.plot(v.value, place, "o", color=colour)
        axis.plot(v.claim.speedup, place, "D", color=PAPER, markersize=5)
    axis.set_yticks(
        range(len(found)), [f"{v.claim.what}, {v.method} ({v.claim.platform})" for v in reversed(found)]
    )
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}x")
    axis.axvline(1, color="black", linewidth=0.8)
    yield Figure(
        title="Mean speedups and the paper's",
        caption="Dots: here, with the 95 % interval, green where the paper's figure is reached. Grey "
        "diamonds: the paper's, on its CPU or its GPU.",
        svg=_svg(figure),
    )


def whole_models(data: Outcomes) -> Iterator[Figure]:
    """Figure 4: each model's latency in PyTorch and as the weighted sum of its tuned tasks."""
    from matplotlib import pyplot

    times, best = whole.measured(data), whole.tuned(data)
    if not times:
        return
    columns = {whole.label(executor): found for executor, found in times.items()}
    columns |= {f"{method}, {setting}, weighted": sums for method, (setting, sums) in best.items()}
    models = [model for model in weighted.tasks_of() if any(model in found for found in columns.values())]
    figure, axis = pyplot.subplots(figsize=(11, 4), layout="constrained")
    for number, (name, found) in enumerate(columns.items()):
        places = [i + 0.8 * (number + 0.5) / len(columns) for i, model in enumerate(models) if model in found]
        axis.bar(places, [1e3 * found[m] for m in models if m in found], 0.75 / len(columns), label=name)
    axis.set_xticks([i + 0.4 for i in range(len(models))], models, fontsize=8)
    axis.set_yscale("log")
    axis.set_ylabel("ms")
    axis.legend(fontsize=7)
    yield Figure(
        title="Figure 4: whole models",
        caption="PyTorch's whole model beside the weighted sum of the tuned tasks, on the same machine.",
        svg=_svg(figure),
    )


def model_speedups(data: Outcomes) -> Iterator[Figure]:
    """Figure 5: weighted model latency over Ansor, a panel a pair of budgets."""
    from matplotlib import pyplot

    panels = []
    for ours in _ours(data):
        for mine in data.settings:
            for theirs in data.settings:
                if theirs.budget >= mine.budget and (
                    found := weighted.ratios(data, "ansor", theirs, ours, mine)
                ):
                    panels.append((f"{ours}, {mine}, over ansor, {theirs}", found))
    if not panels:
        return
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(9, 2.3 * len(panels)), squeeze=False, layout="constrained"
    )
    for axis, (title, found) in zip(axes[:, 0], panels):
        _bars(axis, list(found), stats.by_task(found), title)
    yield Figure(
        title="Figure 5: weighted model latency, Ansor / ours",
        caption="Models with every task tuned. Larger than one: ours is faster.",
        svg=_svg(figure),
    )


def subgraphs_over_time(data: Outcomes) -> Iterator[Figure]:
    """Figure 6: each representative's speedup over Ansor against the seconds of the search."""
    from matplotlib import pyplot

    usual = [s for s in data.settings if s.usual]
    for ours in _ours(data):
        pairs = stats.paired_curves(data, ours, "ansor", usual[-1]) if usual else []
        tasks = list(dict.fromkeys(task for task, _, _ in pairs))
        if not tasks:
            continue
        figure, axes = plots.grid(pyplot, len(tasks), height=1.9)
        for axis, task in zip(axes.flat, tasks):
            mine = [one for one in pairs if one[0] == task]
            start = max(points[0][1] for _, *both in mine for points in both)
            end = max(points[-1][1] for _, *both in mine for points in both)
            when = sorted(
                {p[1] for _, *both in mine for points in both for p in points if start <= p[1] <= end}
            )
            values = [stats.geometric_mean(stats.ratios_at(mine, t)[task]) for t in when]
            axis.step(when, values, where="post", color=FASTER, linewidth=1.3)
            axis.axhline(1, color="black", linewidth=0.8)
            low, high = min(*values, 0.9) / 1.1, max(*values, 1.1) * 1.1
            axis.set_yscale("log", base=2)
            ticks = [x for x in (2.0 ** (n / 2) for n in range(-20, 21)) if low <= x <= high]
            axis.set_yticks(ticks, [f"{x:.2g}x" for x in ticks])
            axis.set_ylim(low, high)
            axis.set_title(data.titles[task] or task, fontsize=8)
            axis.tick_params(labelsize=7)
        figure.supxlabel("seconds of search", fontsize=9)
        yield Figure(
            title=f"Figure 6: speedup over time, {ours} over ansor, {usual[-1]}",
            caption="From when both have a schedule; first measurements, the mean over seeds.",
            svg=_svg(figure),
        )


def subgraphs_by_budget(data: Outcomes) -> Iterator[Figure]:
    """Figure 7: each representative's speedup over each baseline, at equal budgets and across."""
    from matplotlib import pyplot

    for ours, base in data.pairs():
        panels = [
            (f"{ours}, {mine}, over {base}, {theirs}", found)
            for mine in data.settings
            for theirs in data.settings
            if mine.budget <= theirs.budget and (mine.usual == theirs.usual or mine == theirs)
            if (found := data.ratios(base, theirs, ours, mine))
        ]
        if not panels:
            continue
        figure, axes = pyplot.subplots(
            len(panels), 1, figsize=(9, 2.8 * len(panels)), squeeze=False, layout="constrained"
        )
        for axis, (title, found) in zip(axes[:, 0], panels):
            _bars(axis, [data.titles[task] or task for task in found], stats.by_task(found), title)
        yield Figure(
            title=f"Figure 7: speedup of each subgraph, {ours} over {base}",
            caption="Equal and unequal budgets; green: ours is faster.",
            svg=_svg(figure),
        )


def latency_curves(data: Outcomes) -> Iterator[Figure]:
    """Best latency so far, against trials and against seconds."""
    usual = [s for s in data.settings if s.usual] or data.settings
    if not data.all:
        return
    for what, axis in (("trials", 0), ("seconds of search", 1)):
        yield Figure(
            title=f"Best latency against {what}, {usual[-1]}",
            caption="First measurements; the geometric mean over seeds, milliseconds.",
            svg=_svg(plots.curves(data, usual[-1], axis=axis)),
        )


def sample_efficiency(data: Outcomes) -> Iterator[Figure]:
    """Figure 8: (a) our budgets against Ansor's, (b) the largest against the largest by subgraph."""
    from matplotlib import pyplot

    usual = [s for s in data.settings if s.usual]
    for ours in _ours(data):
        lines: dict[Setting, list[tuple[Setting, float]]] = {}
        for mine in usual:
            for theirs in usual:
                if found := data.ratios("ansor", theirs, ours, mine):
                    lines.setdefault(mine, []).append((theirs, stats.geometric_mean(stats.by_task(found))))
        if len(usual) < 2 or not lines:
            continue
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        for mine, points in lines.items():
            left.plot([p[0].budget for p in points], [p[1] for p in points], "o-", label=f"{ours}, {mine}")
        for budget in sorted({c.ours_budget for c in paper.claims() if c.where == "Figure 8"}):
            published = [c for c in paper.claims() if c.where == "Figure 8" and c.ours_budget == budget]
            shown = [c for c in published if c.baseline_budget in {s.budget for s in usual}]
            left.plot(
                [c.baseline_budget for c in shown],
                [c.speedup for c in shown],
                "D",
                color=PAPER,
                label=f"paper, GPU, ours-{budget}" if shown else None,
            )
        left.set_xscale("log", base=2)
        left.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        left.axhline(1, color="black", linewidth=0.8)
        left.set_xlabel("Ansor's trials")
        left.set_ylabel("Ansor / ours, geometric mean")
        left.legend(fontsize=8)
        mine, theirs = max(lines, key=lambda s: s.budget), usual[-1]
        found = data.ratios("ansor", theirs, ours, mine)
        names = [data.titles[task] or task for task in found]
        ordered = sorted(zip(stats.by_task(found), names), reverse=True)
        _bars(right, [n for _, n in ordered], [v for v, _ in ordered], f"{mine} over ansor, {theirs}")
        yield Figure(
            title=f"Figure 8: sample efficiency, {ours}",
            caption="(a) geometric means over the subgraphs that both have; (b) by subgraph, sorted.",
            svg=_svg(figure),
        )


def ablation_boxes(data: Outcomes) -> Iterator[Figure]:
    """Figure 9: latency increase of each ablated method, as boxes with the subgraphs' points."""
    from matplotlib import pyplot

    published = {row["name"]: row for row in paper.figures()["ablations"]["rows"]}
    for setting in data.settings:
        changes = against.ablation_changes(data, setting)
        if not changes:
            continue
        figure, axis = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
        rows = [published[data.ablations[method]] for method in changes]
        values = [list(found.values()) for found in changes.values()]
        places = range(1, len(values) + 1)
        axis.boxplot(values, positions=list(places), showfliers=False, widths=0.5)
        for place, one in zip(places, values):
            spread = [place + 0.16 * math.sin(7.1 * i) for i in range(len(one))]  # apart, the same each time
            axis.plot(spread, one, ".", color=SLOWER, alpha=0.7)
            axis.plot(place, sum(one) / len(one), "D", color="black", markersize=5)
        axis.plot(list(places), [row["median"] for row in rows], "_", color=PAPER, markersize=28)
        axis.set_xticks(list(places), [row["title"] for row in rows], fontsize=8, rotation=12)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_yscale("symlog", linthresh=20)
        axis.set_ylabel("latency increase, %")
        yield Figure(
            title=f"Figure 9: ablations, {setting}",
            caption="Boxes: quartiles over subgraphs; points: subgraphs; diamonds: means; grey bars: the "
            "paper's medians.",
            svg=_svg(figure),
        )


def _bars(axis: Axes, names: Sequence[str], values: Sequence[float], title: str) -> None:
    """Bars of speedups on a log2 scale around one, the geometric mean last."""
    total = stats.geometric_mean(values)
    heights = [math.log2(value) for value in [*values, total]]
    colours = [FASTER if height >= 0 else SLOWER for height in heights]
    axis.bar(range(len(heights)), heights, color=colours)
    axis.set_xticks(range(len(heights)), [*names, "geometric mean"], rotation=40, ha="right", fontsize=7)
    axis.set_yticks(
        ticks := list(range(math.floor(min(*heights, 0)), math.ceil(max(*heights, 0)) + 1)),
        [f"{2.0**tick:g}x" for tick in ticks],
    )
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_title(f"{title}: {total:.2f}x", fontsize=9)


FIGURES: tuple[Callable[[Outcomes], Iterator[Figure]], ...] = (
    means,
    whole_models,
    model_speedups,
    subgraphs_over_time,
    subgraphs_by_budget,
    latency_curves,
    sample_efficiency,
    ablation_boxes,
)
