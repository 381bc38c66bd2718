"""Comparison with the paper's numbers: means with a verdict each; Table 3 and Figures 8 and 9 as tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import suites
from benchmarks.methods import kin
from benchmarks.outcomes import paper, weighted
from benchmarks.outcomes import ratios as stats
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.outcomes.paper import Claim
from benchmarks.outcomes.tables import Table, interval, mean, ratio, wins
from benchmarks.plan import DEFAULT_ROUND
from wmsched import zoo

ALL = len(suites.REPRESENTATIVES)


def usual(budget: int) -> Setting:
    """The budget in rounds as stock TVM does them, which the paper's are taken to be."""
    return Setting(budget, min(budget, DEFAULT_ROUND))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim of the paper and what came of it with one of our methods ("" where nothing is measured)."""

    claim: Claim
    method: str
    ratios: dict[str, list[float]]

    @property
    def value(self) -> float:
        return stats.geometric_mean(stats.by_task(self.ratios))

    @property
    def partial(self) -> bool:
        """Whether subgraphs or models are missing."""
        return len(self.ratios) < (len(weighted.tasks_of()) if self.claim.group == "models" else ALL)

    @property
    def word(self) -> str:
        """ "ahead" or "short" of the paper's number, with what qualifies it; "not measured"."""
        if not self.ratios:
            return "not measured"
        low, high = stats.confidence(self.ratios)
        text = "ahead" if self.value >= self.claim.speedup else "**short**"
        if low <= self.claim.speedup <= high:
            text += ", within the interval"
        if self.claim.baseline != "ansor" and low <= 1.0:
            text += ", the interval does not exclude 1"
        return text


def verdicts(data: Outcomes) -> list[Verdict]:
    """Each of the paper's claims with each of our methods.

    The CPU's claims are there even without data; the GPU's, and those at larger budgets than ours, only
    where the lines have something to set beside them.
    """
    ours = _ours(data)
    found = []
    for claim in paper.claims():
        settings = usual(claim.baseline_budget), usual(claim.ours_budget)
        measured = []
        for method in ours:
            make = weighted.ratios if claim.group == "models" else Outcomes.ratios
            ratios = make(data, claim.baseline, settings[0], method, settings[1])
            if ratios and all(data.titles.get(task, "x") for task in ratios):
                measured.append(Verdict(claim=claim, method=method, ratios=ratios))
        if not measured and claim.platform == "CPU":
            measured = [Verdict(claim=claim, method="", ratios={})]
        found += measured
    return found


def _ours(data: Outcomes) -> list[str]:
    """Those of our methods that differ from the paper's baselines by the cost model alone."""
    return [method for method in data.ours if method.startswith("wmsched") and not kin(method)]


def claims(data: Outcomes) -> list[Table]:
    """The verdicts as a table; nothing if no representative of the paper's is in the lines."""
    found = verdicts(data)
    if not any(v.ratios for v in found):
        return []
    rows = []
    for v in found:
        wanted = f" ({v.claim.better_on} of {ALL})" if v.claim.better_on is not None else ""
        rows.append(
            [
                v.claim.what,
                v.method,
                f"{v.claim.speedup:.2f}{wanted}, {v.claim.platform}, {v.claim.where}",
                mean(v.ratios),
                interval(v.ratios),
                wins(v.ratios),
                v.word,
            ]
        )
    head = ["", "method", "paper", "here", "95 % interval", "faster on", ""]
    return [Table(title="Beside the paper", head=head, rows=rows, note=shortfalls(found))]


def shortfalls(found: Sequence[Verdict]) -> str:
    """In words: what falls short, what is not measured, what is measured in part."""
    short = [v for v in found if v.ratios and v.value < v.claim.speedup]
    missing = [v for v in found if not v.ratios]
    parts = []
    for platform in ("CPU", "GPU"):
        told = [
            f"{v.claim.what}, {v.method}: {v.value:.2f} against {v.claim.speedup:.2f}"
            for v in short
            if v.claim.platform == platform
        ]
        if told:
            parts.append(f"Short of the paper's {platform} figures: {'; '.join(told)}.")
    if not short:
        parts.append("Nothing that is measured falls short of the paper's figure.")
    if missing:
        parts.append("Not measured: " + "; ".join(v.claim.what for v in missing) + ".")
    if any(v.ratios and v.partial for v in found):
        parts.append(f"The means are over the subgraphs measured so far (the column counts them), of {ALL}.")
    return " ".join(parts)


def table3(data: Outcomes) -> list[Table]:
    """Table 3 for this machine: each subgraph's speedups over Ansor and TenSet, the paper's beside."""
    ours = next(iter(_ours(data)), "")
    by_type = {data.titles[task]: task for task in data.tasks if data.titles[task] in suites.BY_TYPE}
    columns = []
    for budget in (16, 64, 1024):
        for base in ("ansor", "tenset"):
            if found := data.ratios(base, usual(budget), ours, usual(budget)):
                columns.append((budget, base, found))
    if not by_type or not columns:
        return []
    rows = []
    for entry in suites.REPRESENTATIVES:
        row = [entry.title, by_type.get(entry.type, ""), paper.task_name(entry.type)]
        for budget, base, found in columns:
            published = paper.table3(entry.type, base, budget)
            row += [
                ratio(found.get(by_type.get(entry.type, ""))),
                "" if published is None else f"{published:.2f}",
            ]
        rows.append(row)
    means: list[str] = []
    for budget, base, found in columns:
        means += [mean(found), f"{paper.figures()['table3_means'][base][str(budget)]:.2f}"]
    rows.append(["**geometric mean**", "", "", *means])
    head = ["subgraph", "task here", "the paper's"]
    for budget, base, _ in columns:
        head += [f"{base} / {ours}, {budget}", "paper, GPU"]
    return [Table(title="Table 3: speedup of each subgraph", head=head, rows=rows)]


def efficiency(data: Outcomes) -> list[Table]:
    """Figure 8(a): every budget of ours against every budget of Ansor's, as geometric means."""
    settings = [s for s in data.settings if s.usual]
    published = {
        (c.ours_budget, c.baseline_budget): c
        for c in paper.claims()
        if c.group == "subgraphs" and c.baseline == "ansor" and c.platform == "GPU"
    }
    tables = []
    for ours in _ours(data):
        rows = []
        for mine in settings:
            cells = []
            for theirs in settings:
                found = data.ratios("ansor", theirs, ours, mine)
                claim = published.get((mine.budget, theirs.budget))
                beside = f" (paper {claim.speedup:.2f}, GPU)" if claim else ""
                cells.append(mean(found) + beside if found else "")
            if any(cells):
                rows.append([f"{ours}, {mine}", *cells])
        if len(settings) > 1 and rows:
            head = ["", *(f"against ansor, {s}" for s in settings)]
            tables.append(Table(title="Figure 8: sample efficiency", head=head, rows=rows))
    return tables


def ablation_changes(data: Outcomes, setting: Setting) -> dict[str, dict[str, float]]:
    """Figure 9's numbers: increase of latency in percent (Eq 14) of each ablated method, by task.

    Seeds are averaged geometrically. The full method is `wmsched`; without it, nothing.
    """
    found: dict[str, dict[str, float]] = {}
    for method in data.ablations:
        ratios = data.ratios(method, setting, "wmsched", setting)  # ablated / full
        if ratios:
            found[method] = {task: 100 * (stats.geometric_mean(one) - 1) for task, one in ratios.items()}
    return found


def ablations(data: Outcomes) -> list[Table]:
    """Figure 9 as a table, for each budget that has ablated runs."""
    published = {row["name"]: row for row in paper.figures()["ablations"]["rows"]}
    tables = []
    for setting in data.settings:
        rows = []
        for method, changes in ablation_changes(data, setting).items():
            values, row = list(changes.values()), published[data.ablations[method]]
            rows.append(
                [
                    row["title"],
                    f"{statistics.median(values):+.1f} %",
                    f"{statistics.fmean(values):+.1f} %",
                    f"{sum(v > 0 for v in values)} of {len(values)}",
                    "" if row["median"] is None else f"{row['median']:+.1f} %",
                    "" if row["mean"] is None else f"{row['mean']:+.1f} %",
                    "" if row["slower"] is None else f"{row['slower']} of {ALL}",
                ]
            )
        if rows:
            head = ["variant", "median", "mean", "slower on", "paper: median", "mean", "slower on"]
            title = f"Figure 9: latency increase without a part, {setting}"
            tables.append(Table(title=title, head=head, rows=rows))
    return tables


def counts() -> list[Table]:
    """How many subgraphs each model has here and in the paper (Table 1)."""
    paper_counts = paper.figures()["table1"]
    here = {model: sum(row["model"] == model for row in zoo.rows()) for model in zoo.models()}
    rows = [[model, str(count), str(paper_counts[model])] for model, count in here.items()]
    rows.append(["all", str(sum(here.values())), str(sum(paper_counts.values()))])
    return [Table(title="Subgraphs", head=["model", "tasks here", "paper"], rows=rows)]
