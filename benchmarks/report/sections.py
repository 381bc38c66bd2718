"""Tables that every report has: latencies, speedups, budgets, times, costs, machine.

Each function takes outcomes and gives tables, none where the lines have no data for it. What is set
beside the paper is in `against.py`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes import weighted
from benchmarks.outcomes.outcomes import Outcomes, Setting, middle
from benchmarks.outcomes.tables import Table, interval, latency, mean, rate, ratio, wins
from benchmarks.plan import DEFAULT_ROUND, Line

SUMMARY = ["", "speedup", "95 % interval", "faster on"]


def latencies(data: Outcomes, setting: Setting) -> list[Table]:
    """Milliseconds of each task and method: the median over seeds, with the spread of the measurement."""
    rows = []
    for task in data.tasks:
        cells = [data.of(task, method, setting) for method in data.methods]
        if any(cells):
            best = min((middle(cell) for cell in cells if cell), default=math.inf)
            rows.append([task, data.titles[task], *(latency(cell, best) for cell in cells)])
    if not rows:
        return []
    used = [i for i, _ in enumerate(data.methods) if any(row[2 + i] for row in rows)]
    head = ["task", "type", *(data.methods[i] for i in used)]
    rows = [[row[0], row[1], *(row[2 + i] for i in used)] for row in rows]
    return [Table(title=f"Latency after {setting}, ms", head=head, rows=rows)]


def speedups(data: Outcomes, setting: Setting) -> list[Table]:
    """Speedup of each of our methods over each baseline on each representative, and in the mean."""
    columns: dict[str, dict[str, list[float]]] = {}
    for ours, base in data.pairs():
        if found := data.ratios(base, setting, ours, setting):
            columns[f"{ours} over {base}"] = found
    if not columns:
        return []
    every = list(columns.values())
    rows = [
        [task, data.titles[task], *(ratio(found.get(task)) for found in every)]
        for task in data.tasks
        if any(task in found for found in every)
    ]
    rows.append(["**geometric mean**", "", *map(mean, every)])
    rows.append(["95 % interval", "", *map(interval, every)])
    rows.append(["faster on", "", *map(wins, every)])
    return [Table(title=f"Speedup after {setting}", head=["task", "type", *columns], rows=rows)]


def summary(data: Outcomes) -> list[Table]:
    """The geometric means alone, a line for each setting and pair of methods."""
    rows = []
    for setting in data.settings:
        for ours, base in data.pairs():
            if found := data.ratios(base, setting, ours, setting):
                rows.append([f"{ours} over {base}, {setting}", mean(found), interval(found), wins(found)])
    return [Table(title="Speedups in the mean", head=SUMMARY, rows=rows)] if rows else []


def cross_budget(data: Outcomes) -> list[Table]:
    """Our smaller budgets against the baselines' larger ones."""
    rows = []
    for ours, base in data.pairs():
        for small in data.settings:
            for large in data.settings:
                if small.budget < large.budget and (found := data.ratios(base, large, ours, small)):
                    what = f"{ours}, {small} against {base}, {large}"
                    rows.append([what, mean(found), interval(found), wins(found)])
    return [Table(title="Across budgets", head=SUMMARY, rows=rows)] if rows else []


def smaller_rounds(data: Outcomes) -> list[Table]:
    """The same trials in smaller rounds: against a method's own usual rounds, and ours against baselines'."""
    rows = []
    for small in data.settings:
        usual = Setting(small.budget, min(small.budget, DEFAULT_ROUND))
        if small == usual:
            continue
        for method, other in [*((m, m) for m in data.ours + data.baselines), *data.pairs()]:
            if found := data.ratios(other, usual, method, small):
                what = f"{method}, {small} against {other}, {usual}"
                rows.append([what, mean(found), interval(found), wins(found)])
    return [Table(title="Smaller rounds", head=SUMMARY, rows=rows)] if rows else []


def headroom(data: Outcomes) -> list[Table]:
    """How far each method's choice is from the best known of its task: what a cost model could still gain.

    Best known is the fastest of all lines given, of the same search on the same tasks. More lines, of larger
    budgets, can only make it faster.
    """
    rows = []
    for method in data.methods:
        for setting in data.settings:
            found = {}
            for task in data.representatives:
                if cell := data.of(task, method, setting):
                    best = data.best_known(task, method)
                    found[task] = [outcome.seconds / best for outcome in cell.values()]
            if found:
                rows.append([method, str(setting), mean(found), interval(found)])
    head = ["method", "budget", "times the best known latency", "95 % interval"]
    return [Table(title="What was left to gain", head=head, rows=rows)] if len(rows) > 1 else []


def models(data: Outcomes, setting: Setting) -> list[Table]:
    """Weighted sums of task latencies (Eq 13) of models with every task tuned, and their speedups."""
    totals = {
        m: {model: weighted.sums(data, model, m, setting) for model in weighted.tasks_of()}
        for m in data.methods
    }
    methods = [m for m in data.methods if any(totals[m].values())]
    if not methods:
        return []
    pairs = [(ours, base) for ours, base in data.pairs() if ours in methods and base in methods]
    found = [weighted.ratios(data, base, setting, ours, setting) for ours, base in pairs]
    rows = []
    for model in weighted.tasks_of():
        if any(totals[m][model] for m in methods):
            sums = [totals[m][model] for m in methods]
            rows.append(
                [
                    model,
                    *(f"{statistics.median(s.values()) * 1e3:.3f}" if s else "" for s in sums),
                    *(ratio(one.get(model)) for one in found),
                ]
            )
    if any(found):
        for name, cell in (("**geometric mean**", mean), ("95 % interval", interval), ("faster on", wins)):
            rows.append([name, *[""] * len(methods), *map(cell, found)])
    head = ["model", *(f"{m}, ms" for m in methods), *(f"{ours} over {base}" for ours, base in pairs)]
    return [Table(title=f"Weighted model latency (Eq 13) after {setting}", head=head, rows=rows)]


def coverage(data: Outcomes) -> list[Table]:
    """How many tasks of each model are tuned, where a model's sum is not complete."""
    rows = []
    for setting in data.settings:
        for method in data.methods:
            counts = {model: weighted.tuned(data, model, method, setting) for model in weighted.tasks_of()}
            if any(0 < done < total for done, total in counts.values()):
                part = [
                    f"{model} {done} of {total}"
                    for model, (done, total) in counts.items()
                    if 0 < done < total
                ]
                rows.append([method, str(setting), ", ".join(part)])
    head = ["method", "budget", "tasks tuned"]
    return [Table(title="Models not summed, for want of tasks", head=head, rows=rows)] if rows else []


def costs(data: Outcomes) -> list[Table]:
    """Where the time went: seconds of a run, the cost model's share, candidates scored a second."""
    rows = []
    for setting in data.settings:
        for method, kept in itertools.product(data.methods, (False, True)):
            lines = [
                o.line
                for o in data.all.values()
                if (o.setting, o.run.method, o.kept_workers) == (setting, method, kept)
            ]
            if not lines:
                continue
            scored = rate(lines)
            shares = [line["model_share"] for line in lines if line.get("model_share") is not None]
            failed, trials = (sum(line[name] for line in lines) for name in ("failed", "trials"))
            rows.append(
                [
                    method + (", processes kept" if kept else ""),
                    str(setting),
                    str(len(lines)),
                    f"{statistics.fmean(line['search_seconds'] for line in lines):.1f}",
                    f"{100 * statistics.fmean(shares):.1f} %" if shares else "",
                    f"{scored:.0f}" if not math.isnan(scored) else "",
                    f"{100 * failed / trials:.1f} %",
                ]
            )
    head = ["method", "budget", "runs", "seconds a run", "in the cost model", "candidates/s", "failed trials"]
    return [Table(title="Cost of the search", head=head, rows=rows)] if rows else []


def times(data: Outcomes) -> list[Table]:
    """Speedup at equal wall time, from the curves of first measurements, at the usual largest budget."""
    usual = [s for s in data.settings if s.usual]
    rows = []
    for ours, base in data.pairs() if usual else []:
        curves = stats.paired_curves(data, ours, base, usual[-1])
        for seconds in stats.time_grid(curves):
            found = stats.ratios_at(curves, seconds)
            rows.append([f"{ours} over {base}", f"{seconds:g} s", mean(found), interval(found), wins(found)])
    head = ["", "after", "speedup", "95 % interval", "faster on"]
    return [Table(title=f"At equal time, {usual[-1]}", head=head, rows=rows)] if rows else []


def provenance(data: Outcomes) -> str:
    """Machines, versions, commits and bundles behind the numbers, as a Markdown list."""
    facts: dict[str, dict[str, None]] = {}
    lines = [outcome.line | {"seeds": outcome.run.seed} for outcome in data.all.values()]
    for line in lines + data.others.get("pytorch", []):
        versions = ", ".join(f"{k} {v}" for k, v in sorted((line.get("versions") or {}).items()))
        where = f"{line.get('cpu')}, {line.get('cores')} cores, {line.get('machine')}"
        threads = line.get("threads") if line["kind"] == "run" else None
        if line.get("emulated_threads"):
            threads = f"{line['emulated_threads']}, emulated: the first one's share of each parallel loop"
        for name, value in (
            ("machine", where),
            ("timed on", (line.get("device") or {}).get("name")),
            ("target", line.get("target")),
            ("threads of a measured program", threads),
            ("versions", versions + (f", tvm {line['tvm']}" if line.get("tvm") else "")),
            ("commit", line.get("git")),
            ("bundle", f"{line['bundle']} ({line['fingerprint']})" if line.get("bundle") else None),
            ("seeds", line.get("seeds")),
        ):
            if value is not None and value != "":
                facts.setdefault(name, {})[str(value)] = None

    def counted(name: str, told: Sequence[Line]) -> dict[str, None]:
        counts = Counter(int(line.get(name) or 1) for line in told)  # lines from before there were several
        return dict.fromkeys(f"{number} ({count} runs)" for number, count in sorted(counts.items())[::-1])

    facts["sets of buffers that a search timed a candidate on"] = counted("places", lines)
    searches = [line for line in lines if "search_seconds" in line]
    if any(int(line.get("calls") or 1) != 1 for line in searches):
        name = "calls, at most, that make a candidate's time on one set in the search"
        facts[name] = counted("calls", searches)
    for field, name in (
        ("paired", "candidates timed beside a reference, of"),
        ("vector_math", "exp, tanh, erf and log in vectors, of"),
    ):
        runs = Counter(line["method"] for line in searches if line.get(field))
        if runs:
            facts[name] = dict.fromkeys(f"{method} ({count} runs)" for method, count in runs.items())
    return "\n".join(f"- {name}: {', '.join(values)}" for name, values in facts.items())


def troubles(data: Outcomes) -> str:
    """Runs that failed, and what methods counted as problems, as a Markdown section; "" for none."""
    found = [f"{r.task}, {r.method}, {r.budget}: {line['error']}" for r, line in data.failures.items()]
    for outcome in data.all.values():
        for kind, count in (outcome.line.get("problems") or {}).items():
            found.append(f"{outcome.run.task}, {outcome.run.method}: {kind}, {count} times")
    found += data.broken
    return "## Failures\n\n" + "\n".join(f"- {text}" for text in found) if found else ""
