"""Whole models (the paper's Figure 4): PyTorch's latency beside the weighted latency of the tuned tasks."""

from __future__ import annotations

import statistics

from benchmarks.methods import META
from benchmarks.outcomes import paper, weighted
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.outcomes.tables import Table, interval, mean, wins
from benchmarks.plan import Line

Executor = tuple[str, int]
"""(name, threads)."""


def latest(data: Outcomes) -> dict[tuple[str, str, int], Line]:
    """The line of each (model, executor, threads): the last good one, or the last."""
    found: dict[tuple[str, str, int], Line] = {}
    for line in data.others.get("pytorch", []):
        key = line["model"], line["executor"], line["threads"]
        if line["status"] == "ok" or found.get(key, {}).get("status") != "ok":
            found[key] = line
    return found


def measured(data: Outcomes) -> dict[Executor, dict[str, float]]:
    """Of each executor, seconds by model."""
    found: dict[Executor, dict[str, float]] = {}
    for (model, name, threads), line in latest(data).items():
        if line["status"] == "ok":
            found.setdefault((name, threads), {})[model] = line["median"]
    return dict(sorted(found.items(), key=lambda item: (item[0][1], item[0][0] != "eager", item[0][0])))


def tuned(data: Outcomes) -> dict[str, tuple[Setting, dict[str, float]]]:
    """Of each method, its largest usual budget with complete models, and their weighted seconds."""
    found: dict[str, tuple[Setting, dict[str, float]]] = {}
    for method in [m for m in data.methods if not m.startswith(META) and m not in data.ablations]:
        for setting in [s for s in data.settings if s.usual]:
            sums = {model: weighted.sums(data, model, method, setting) for model in weighted.tasks_of()}
            if any(sums.values()):
                found[method] = setting, {m: statistics.median(s.values()) for m, s in sums.items() if s}
    return found


def compiled(data: Outcomes) -> dict[tuple[str, Setting], dict[str, list[float]]]:
    """Of each method and budget, the seconds of whole compiled models, one a seed
    (`benchmarks.models.compiled`)."""
    last: dict[tuple[str, Setting, str, int], float] = {}
    for line in data.others.get("whole", []):
        if line["status"] == "ok":
            setting = Setting(line["budget"], line["round_size"])
            last[line["method"], setting, line["model"], line["seed"]] = line["median"]
    found: dict[tuple[str, Setting], dict[str, list[float]]] = {}
    for (method, setting, model, _), seconds in last.items():
        found.setdefault((method, setting), {}).setdefault(model, []).append(seconds)
    return found


def label(executor: Executor) -> str:
    """Such as "PyTorch eager, 1 thread"."""
    name, threads = executor
    return f"PyTorch {name}, {threads} thread{'s' if threads > 1 else ''}"


def tables(data: Outcomes) -> list[Table]:
    """Both latencies of each model, and the tuned tasks' mean speedups; nothing without PyTorch's."""
    times, best, whole = measured(data), tuned(data), compiled(data)
    if not latest(data) and not whole:
        return []
    head = ["model", *(f"{label(executor)}, ms" for executor in times)]
    head += [f"{method}, {setting}, weighted sum, ms" for method, (setting, _) in best.items()]
    head += [f"{method}, {setting}, whole model, ms" for method, setting in whole]
    columns = [*times.values(), *(sums for _, sums in best.values())]
    columns += [{m: statistics.median(seconds) for m, seconds in found.items()} for found in whole.values()]
    rows = [[model, *(_ms(found.get(model)) for found in columns)] for model in weighted.tasks_of()]
    rows = [row for row in rows if any(row[1:])]
    title = "Figure 4: whole models, PyTorch on the same cores"
    return [Table(title=title, head=head, rows=rows, note=_failures(data)), *_speedups(data, times, best)]


def rivals(data: Outcomes) -> dict[str, dict[str, float]]:
    """What our whole models are set against: PyTorch's executors, others' models; seconds by model."""
    others = {label(executor): found for executor, found in measured(data).items()}
    others |= {
        f"{method}, {setting}": {model: statistics.median(seconds) for model, seconds in found.items()}
        for (method, setting), found in compiled(data).items()
        if method not in data.ours
    }
    return others


def _speedups(
    data: Outcomes,
    times: dict[Executor, dict[str, float]],
    best: dict[str, tuple[Setting, dict[str, float]]],
) -> list[Table]:
    rows = []
    for method in [m for m in best if m in data.ours]:
        setting, sums = best[method]
        for executor, found in times.items():
            ratios = {model: [found[model] / seconds] for model, seconds in sums.items() if model in found}
            if ratios:
                what = f"{method}, {setting}, over {label(executor)}"
                rows.append([what, mean(ratios), interval(ratios), wins(ratios)])
    others = rivals(data)
    for (method, setting), mine in compiled(data).items():
        for name, theirs in others.items() if method in data.ours else ():
            ratios = {m: [theirs[m] / one for one in seconds] for m, seconds in mine.items() if m in theirs}
            if ratios:
                what = f"{method}, {setting}, whole model, over {name}"
                rows.append([what, mean(ratios), interval(ratios), wins(ratios)])
    if not rows:
        return []
    figure = paper.figures()["figure4"]
    threads = sorted({o.line["threads"] for o in data.all.values() if o.line.get("threads")})
    note = (
        f"The paper's whole models (Figure 4, GPU): {figure['speedup_over_pytorch']} over PyTorch, "
        f"{figure['speedup_over_pytorch_opt']} over PyTorch with cuDNN, at 800 trials a task. A weighted "
        "sum leaves out what runs between the tasks, which flatters the tuned side a little; each task is "
        "chosen by its time with cold caches."
    )
    if threads:
        note += (
            f" Tuned programs ran on {', '.join(map(str, threads))} thread{'s' if threads != [1] else ''}."
        )
    head = ["", "speedup", "95 % interval", "faster on"]
    return [Table(title="Tuned models over PyTorch", head=head, rows=rows, note=note)]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _failures(data: Outcomes) -> str:
    failed = [line for line in latest(data).values() if line["status"] != "ok"]
    return " ".join(
        dict.fromkeys(f"{line['model']}, {line['executor']}: {line['error']}." for line in failed)
    )
