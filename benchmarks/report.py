"""`python -m benchmarks.report RESULTS... [--md out.md] [--png out.png]`: Markdown tables from results files.

Everything is worked out from the result lines and nothing else. A latency is the median of the second,
interleaved measurement; a run without one (a simulated run, or a kill before it) is shown by its first
measurement, with "*".
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import ratios as stats
from benchmarks.outcomes import Outcome, Outcomes, Setting, middle
from benchmarks.plan import Line, read_all
from wmsched import zoo


class Report:
    """The tables made of some outcomes."""

    def __init__(self, data: Outcomes) -> None:
        self.data = data

    def latencies(self, setting: Setting) -> str:
        """Milliseconds of each task and method: the median over seeds, with the spread of the measurement."""
        rows = []
        for task in self.data.tasks:
            cells = [self.data.of(task, method, setting) for method in self.data.methods]
            if any(cells):
                best = min((middle(cell) for cell in cells if cell), default=math.inf)
                rows.append([task, self.data.titles[task], *(_latency(cell, best) for cell in cells)])
        return _table(["task", "type", *self.data.methods], rows)

    def speedups(self, setting: Setting) -> str:
        """Speedup of each of our methods over each baseline, per task and in the mean; "" without a pair."""
        columns: dict[str, dict[str, list[float]]] = {}
        for ours in self.data.ours:
            for base in self.data.baselines:
                ratios = self.data.ratios(base, setting, ours, setting)
                if ratios:
                    columns[f"{ours} over {base}"] = ratios
        if not columns:
            return ""
        found = list(columns.values())
        rows = [
            [task, self.data.titles[task], *(_ratio(ratios.get(task)) for ratios in found)]
            for task in self.data.tasks
            if any(task in ratios for ratios in found)
        ]
        rows.append(["**geometric mean**", "", *map(_mean, found)])
        rows.append(["95 % interval", "", *map(_interval, found)])
        rows.append(["faster on", "", *map(_wins, found)])
        return _table(["task", "type", *columns], rows)

    def cross_budget(self) -> str:
        """Our smaller budgets against the baselines' larger ones; "" if there are no two budgets."""
        rows = []
        for ours in self.data.ours:
            for base in self.data.baselines:
                for small in self.data.settings:
                    for large in self.data.settings:
                        if small.budget < large.budget:
                            ratios = self.data.ratios(base, large, ours, small)
                            if ratios:
                                what = f"{ours}, {small} against {base}, {large}"
                                rows.append([what, _mean(ratios), _interval(ratios), _wins(ratios)])
        return _table(["", "speedup", "95 % interval", "faster on"], rows) if rows else ""

    def models(self, setting: Setting) -> str:
        """Weighted sums of task latencies (Eq 13) of models with every task tuned; "" if there is none."""
        weights = {row["name"]: (row["model"], row["weight"]) for row in zoo.rows()}
        rows = []
        for model in zoo.models():
            names = [name for name, (of, _) in weights.items() if of == model]
            sums: list[float] = []
            for method in self.data.methods:
                cells = [self.data.of(name, method, setting) for name in names]
                complete = all(cells)
                total = sum(weights[name][1] * middle(cell) for name, cell in zip(names, cells) if cell)
                sums.append(total if complete else math.nan)
            if not all(map(math.isnan, sums)):
                rows.append([model, *("" if math.isnan(s) else f"{s * 1e3:.3f}" for s in sums)])
        return _table(["model", *(f"{m}, ms" for m in self.data.methods)], rows) if rows else ""

    def costs(self) -> str:
        """Where the time went: seconds of a run, the cost model's share, candidates scored a second."""
        rows = []
        for setting in self.data.settings:
            for method in self.data.methods:
                lines = [
                    o.line for o in self.data.all.values() if o.setting == setting and o.run.method == method
                ]
                if not lines:
                    continue
                predict = sum(line.get("predict_seconds") or 0.0 for line in lines)
                scored = sum(line.get("candidates") or 0 for line in lines)
                shares = [line["model_share"] for line in lines if line.get("model_share") is not None]
                failed, trials = (sum(line[name] for line in lines) for name in ("failed", "trials"))
                rows.append(
                    [
                        method,
                        str(setting),
                        str(len(lines)),
                        f"{statistics.fmean(line['search_seconds'] for line in lines):.1f}",
                        f"{100 * statistics.fmean(shares):.1f} %" if shares else "",
                        f"{scored / predict:.0f}" if predict > 0 else "",
                        f"{100 * failed / trials:.1f} %",
                    ]
                )
        head = [
            "method",
            "budget",
            "runs",
            "seconds a run",
            "in the cost model",
            "candidates/s",
            "failed trials",
        ]
        return _table(head, rows)

    def times(self) -> str:
        """Speedup at equal wall time, from the curves of first measurements, at the usual largest budget."""
        usual = [s for s in self.data.settings if s.usual]
        if not usual or not self.data.baselines:
            return ""
        setting = usual[-1]
        rows = []
        for ours in self.data.ours:
            for base in self.data.baselines:
                curves = stats.paired_curves(self.data, ours, base, setting)
                for seconds in stats.time_grid(curves):
                    ratios = stats.ratios_at(curves, seconds)
                    rows.append(
                        [
                            f"{ours} over {base}",
                            f"{seconds:g} s",
                            _mean(ratios),
                            _interval(ratios),
                            _wins(ratios),
                        ]
                    )
        return _table(["", "after", "speedup", "95 % interval", "faster on"], rows) if rows else ""

    def provenance(self) -> str:
        """Machines, versions, commits and bundles behind the numbers."""
        facts: dict[str, dict[str, None]] = {}
        for outcome in self.data.all.values():
            line = outcome.line
            versions = ", ".join(f"{k} {v}" for k, v in sorted((line.get("versions") or {}).items()))
            where = f"{line.get('cpu')}, {line.get('cores')} cores, {line.get('machine')}"
            for name, value in (
                ("machine", where),
                ("target", line.get("target")),
                ("versions", versions + (f", tvm {line['tvm']}" if line.get("tvm") else "")),
                ("commit", line.get("git")),
                ("bundle", f"{line['bundle']} ({line['fingerprint']})" if line.get("bundle") else None),
                ("seeds", str(outcome.run.seed)),
            ):
                if value:
                    facts.setdefault(name, {})[str(value)] = None
        return "\n".join(f"- {name}: {', '.join(values)}" for name, values in facts.items())

    def markdown(self) -> str:
        """All tables that the lines have data for."""
        if not self.data.all:
            return "No run has finished.\n" + self._troubles()
        simulated = any(o.line.get("simulated") for o in self.data.all.values())
        parts = [
            "# Benchmark results" + (" (simulated: recorded measurements replayed)" if simulated else "")
        ]
        parts.append(self.provenance())
        for setting in self.data.settings:
            parts += [f"## Latency after {setting}, ms", self.latencies(setting)]
            speedups = self.speedups(setting)
            if speedups:
                parts += [f"## Speedup after {setting}", speedups]
            models = self.models(setting)
            if models:
                parts += [f"## Weighted model latency (Eq 13) after {setting}", models]
        for title, make in (("Across budgets", self.cross_budget), ("At equal time", self.times)):
            text = make()
            if text:
                parts += [f"## {title}", text]
        parts += ["## Cost of the search", self.costs()]
        if not simulated and not all(o.again for o in self.data.all.values()):
            parts.append("\\* the first measurement: these schedules have not been measured again.")
        parts.append(self._troubles())
        return "\n\n".join(part for part in parts if part) + "\n"

    def _troubles(self) -> str:
        found = [
            f"{r.task}, {r.method}, {r.budget}: {line['error']}" for r, line in self.data.failures.items()
        ]
        for outcome in self.data.all.values():
            for kind, count in (outcome.line.get("problems") or {}).items():
                found.append(f"{outcome.run.task}, {outcome.run.method}: {kind}, {count} times")
        found += self.data.broken
        return "## Failures\n\n" + "\n".join(f"- {text}" for text in found) if found else ""


def markdown(lines: Sequence[Line], *, ours: Sequence[str] = ()) -> str:
    """All tables of some result lines."""
    return Report(Outcomes(lines, ours=ours)).markdown()


def _latency(cell: dict[int, Outcome], best: float) -> str:
    if not cell:
        return ""
    seconds = middle(cell)
    spread = statistics.fmean(o.spread for o in cell.values())
    text = f"{seconds * 1e3:.4g}" + (
        f" ±{100 * spread:.0f} %" if all(o.again for o in cell.values()) else " *"
    )
    return f"**{text}**" if seconds == best else text


def _ratio(values: Iterable[float] | None) -> str:
    return "" if values is None else f"{stats.geometric_mean(values):.2f}"


def _mean(ratios: dict[str, list[float]]) -> str:
    return f"**{stats.geometric_mean(stats.by_task(ratios)):.2f}**"


def _interval(ratios: dict[str, list[float]]) -> str:
    low, high = stats.bootstrap(ratios)
    return f"{low:.2f} to {high:.2f}"


def _wins(ratios: dict[str, list[float]]) -> str:
    return f"{sum(ratio > 1 for ratio in stats.by_task(ratios))} of {len(ratios)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument(
        "--ours", default="", help="methods whose speedups are reported, by commas (wmsched...)"
    )
    parser.add_argument("--md", type=Path, help="write the tables here instead of printing them")
    parser.add_argument("--png", type=Path, help="plot the speedups here, and the time curves beside it")
    options = parser.parse_args(argv)
    data = Outcomes(read_all(options.results), ours=[m for m in options.ours.split(",") if m])
    text = Report(data).markdown()
    if options.md:
        options.md.write_text(text, encoding="utf-8")
    else:
        print(text)
    if options.png:
        from benchmarks import plots

        for path in plots.draw(data, options.png):
            print(path)


if __name__ == "__main__":
    main()
