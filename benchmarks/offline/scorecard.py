"""`python -m benchmarks.offline.scorecard RUNS`: what was asked of the model beside what was measured, as a
table.

    python -m benchmarks.offline.scorecard benchmarks/results/cpu-*.jsonl \\
        --ranking benchmarks/results/state-ranking.jsonl --curve benchmarks/results/finetune.json \\
        --online benchmarks/results/online.jsonl --into docs/explanation/evaluation.md

Every number is worked out from committed lines: those of tuning runs and of `benchmarks.offline.ranking`,
and what
`wmsched finetune --curve --json` and `benchmarks.offline.offline.online_learning --json` wrote, whose tables
follow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import plan
from benchmarks.offline import online_learning, ranking_table
from benchmarks.offline.ranking import ORACLE
from benchmarks.offline.ranking_table import BASE, SHOWN
from benchmarks.outcomes import ratios
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.outcomes.tables import Table, rate
from wmsched.learn.evaluate.quality import estimate
from wmsched.learn.training.learning_curve import curve_markdown, curve_of

MARKS = Marks("<!-- scorecard begins -->", "<!-- scorecard ends -->")
OURS, ONLINE, STOCK = "wmsched", "wmsched-online", "ansor"
LEAST_LONG = 200  # trials from which what is learnt in the run must have caught up with stock
METRICS = SHOWN[:3]
OVER = (
    ("stock", "ours less stock, the same data"),
    ("plain", "ours less plain phi, the same data"),
    ("tlp", "ours less TLP, the same data"),
    ("ours, actions only", "ours, with the loop nest that the actions lead to, less phi without it"),
    ("ours, initial", "ours less G on the initial state"),
)

Row = tuple[str, str, str, bool | None]
"""(what, asked, measured, whether it is met; None where nothing was asked)."""


def searches(data: Outcomes) -> Iterator[Row]:
    """The rows of tuning runs."""
    for setting in data.settings:
        long = setting.budget >= LEAST_LONG
        for method in (ONLINE,) if long else (OURS, ONLINE):
            pairs = data.ratios(STOCK, setting, method, setting)
            if not pairs:
                continue
            found = {task: ratios.geometric_mean(each) for task, each in pairs.items()}
            worst, asked = min(found, key=found.__getitem__), 1.0 if long else 0.9
            yield (
                f"{method}, {setting}: the slowest of {len(found)} representatives, stock Ansor being 1",
                f"at least {asked:g}",
                f"{found[worst]:.2f} ({worst}); mean {ratios.geometric_mean(found.values()):.2f}",
                found[worst] >= asked,
            )
    for setting in data.settings:
        for kept in (False, True):
            yield from _costs(data, setting, kept=kept)


def _costs(data: Outcomes, setting: Setting, *, kept: bool) -> Iterator[Row]:
    """Speed of scoring and its share of the time, over the representatives that both methods have.

    Runs whose builders and runners were `kept` and runs that started them anew differ in all but the model,
    so each have rows of their own.
    """

    def lines(task: str, method: str) -> list[plan.Line]:
        found = data.of(task, method, setting).values()
        return [outcome.line for outcome in found if outcome.kept_workers == kept]

    tasks = [task for task in data.representatives if lines(task, OURS) and lines(task, STOCK)]
    if not tasks:
        return
    ours, stock = ([line for task in tasks for line in lines(task, method)] for method in (OURS, STOCK))
    fast, slow = rate(ours), rate(stock)
    where = f"{setting}, processes kept" if kept else str(setting)
    name = f"candidates a second in the search, {where}, over stock's"
    yield name, "at least 5", f"{fast / slow:.1f} ({fast:.0f} and {slow:.0f})", fast >= 5 * slow
    share = _sum(ours, "predict_seconds", "update_seconds") / _sum(ours, "search_seconds")
    yield f"share of the tuning time in the model, {where}", "below 5 %", f"{share:.1%}", share < 0.05


def _sum(lines: Sequence[plan.Line], *names: str) -> float:
    return float(sum(line[name] for line in lines for name in names))


def rankings(lines: ranking_table.Lines) -> Iterator[Row]:
    """The rows of recorded programs of networks held out."""
    groups = sorted(lines[BASE])

    def values(method: str, metric: str) -> NDArray[np.float64]:
        return ranking_table.values(lines[method], groups, metric)

    def above(method: str) -> tuple[str, bool]:
        gaps = [(name, estimate(values(BASE, metric) - values(method, metric))) for metric, name in METRICS]
        text = "; ".join(f"{name} {gap.signed()}" for name, gap in gaps)
        return text, all(gap.low > 0 for _, gap in gaps)

    for metric, name, least, aim in (("top1", "top-1", 0.80, 0.90), ("top5", "top-5", 0.95, 0.97)):
        found = estimate(values(BASE, metric))
        where = f"{name} on networks held out, {found.workloads} workloads"
        yield where, f"at least {least:.2f}, aim {aim:.2f}", found.text(), found.mean >= least
    if ORACLE in lines:
        best = ", ".join(f"{name} {estimate(values(ORACLE, metric)).mean:.3f}" for metric, name in METRICS)
        yield "what timing noise leaves to the best possible model, at least", "", best, None
    for method, name in OVER:
        if method in lines:
            yield name, "above, outside the interval", *above(method)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    verdicts = {True: "yes", False: "**no**", None: ""}
    cells = [[what, asked, measured, verdicts[met] if asked else ""] for what, asked, measured, met in rows]
    return Table(title="", head=["", "asked", "measured", "met"], rows=cells).markdown()


def page(options: argparse.Namespace) -> str:
    """All of it, between the marks."""
    data, ranked = Outcomes(plan.read_all(options.files)), ranking_table.read([options.ranking])
    rows = [*searches(data), *rankings(ranked["network"])]
    parts = [table(rows)]
    if options.online is not None:
        told = online_learning.read(options.online)
        parts += [
            "Told of the task's own measurements in random order, what is left is ranked:",
            online_learning.table(told),
        ]
    if options.curve is not None:
        written = json.loads(options.curve.read_text(encoding="utf-8"))
        parts += ["A bundle of one machine's records, adapted with records of another and without:"]
        parts += [curve_markdown(curve_of(written)).rstrip()]
    return "\n\n".join(parts) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.offline.scorecard", description=(__doc__ or "")[:100]
    )
    parser.add_argument("files", type=Path, nargs="+", help="lines of `benchmarks.run`")
    parser.add_argument("--ranking", type=Path, required=True, help="lines of `benchmarks.offline.ranking`")
    parser.add_argument("--curve", type=Path, help="what `wmsched finetune --curve --json` wrote")
    parser.add_argument(
        "--online", type=Path, help="what `benchmarks.offline.offline.online_learning --json` wrote"
    )
    parser.add_argument("--into", type=Path, help="a page with the two marks; else it is printed")
    options = parser.parse_args(argv)
    text = page(options)
    if options.into is None:
        print(text, end="")
    else:
        old = options.into.read_text(encoding="utf-8")
        options.into.write_text(MARKS.replaced(old, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
