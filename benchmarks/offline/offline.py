"""`python -m benchmarks.offline`: how well models rank the programs of unseen networks.

    python -m benchmarks.offline --records LOGS --workloads workloads.json.gz --methods random,stock
    \\
        --scorer wmsched=some.module:function --out benchmarks/results/offline.jsonl --md offline.md

Networks are dealt into folds; each method is trained on the others and scores the programs of those left
out, so a workload is always scored by a model that saw neither it nor its network. A scorer of one's own is a
function `(train: list[Measured], test: list[Measured]) -> dict[key, scores]`, one call a fold.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine, records
from benchmarks.methods.step_counts import StepBooster
from benchmarks.outcomes.tables import Table
from benchmarks.records import Measured
from wmsched.base.errors import WmschedError
from wmsched.learn.data.splits import dealt
from wmsched.learn.evaluate import metrics

logger = logging.getLogger("benchmarks")

Scores = dict[str, NDArray[np.float64]]
Scorer = Callable[[list[Measured], list[Measured]], Scores]

RANDOM = "random"
DRAWS = 25  # of the random method, whose numbers are means over them
COLUMNS = ("top1", "top5", "pairs", "tau")


def folds(networks: dict[str, str], count: int) -> list[list[str]]:
    """Deal workload keys into folds by network, largest network first onto the smallest fold.

    Parameters
    ----------
    networks : dict
        The network of each workload key. A key that two networks share belongs to the first.
    count : int
        Number of folds; 0 leaves one network out at a time.
    """
    members: dict[str, list[str]] = {}
    for key, network in networks.items():
        members.setdefault(network, []).append(key)
    if len(members) < 2:
        raise ValueError(
            f"there are {len(members)} networks in the records: leaving one out needs at least two"
        )
    return dealt(members, count or len(members))


def random_scorer() -> Scorer:
    """Scores drawn at random, other ones at each call."""
    rng = np.random.default_rng(0)
    return lambda train, test: {group.key: rng.random(len(group.steps)) for group in test}


def plain_scorer(train: list[Measured], test: list[Measured]) -> Scores:
    """Boosted trees on counts of steps and sizes of splits (`methods.step_counts`): no TVM, no network."""
    booster = StepBooster.fit([(group.steps, group.seconds) for group in train], rounds=300)
    return {group.key: booster.predict(group.steps) for group in test}


def tlp_scorer(train: list[Measured], test: list[Measured]) -> Scores:
    """TLP (`benchmarks.rankers.tlp`), by the transform steps alone."""
    from benchmarks.rankers.tlp import fit

    return fit.scorer(train, test)


def stock_scorer(groups: Sequence[Measured], rows: dict[str, dict[str, Any]]) -> Scorer:
    """The stock XGBModel; features of all programs are extracted at the first call."""
    cache: list[Any] = []

    def score(train: list[Measured], test: list[Measured]) -> Scores:
        from benchmarks.tune.stock_model import StockFeatures

        if not cache:
            cache.append(StockFeatures(groups, rows))
        booster = cache[0].fit([group.key for group in train])
        return {group.key: cache[0].predict(booster, group.key) for group in test}

    return score


def wmsched_scorer(groups: Sequence[Measured], rows: dict[str, dict[str, Any]]) -> Scorer:
    """Our ranker; the rows of all programs are made at the first call."""
    cache: list[Any] = []

    def score(train: list[Measured], test: list[Measured]) -> Scores:
        from benchmarks.offline.ours import ActionRanker

        if not cache:
            cache.append(ActionRanker(groups, rows))
        return cache[0].score(train, test)

    return score


def imported_scorer(name: str) -> Scorer:
    """The function `module:function`. WmschedError if there is none."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise WmschedError(f"no scorer {name!r} ({error}); name it as package.module:function") from error


def evaluate(scores: NDArray[np.float64], seconds: NDArray[np.float64]) -> dict[str, float]:
    """The four numbers of one workload; and `ran1`, `ran5`: top-k without the programs that failed.

    TenSet and TLP leave failed programs out of their data; with one chosen, a network's sum is infinite.
    """
    ran = np.isfinite(seconds)
    return {
        "ran1": metrics.top_k_score(scores[ran], seconds[ran], 1),
        "ran5": metrics.top_k_score(scores[ran], seconds[ran], 5),
        "top1": metrics.top_k_score(scores, seconds, 1),
        "top5": metrics.top_k_score(scores, seconds, 5),
        "pairs": metrics.pairwise_accuracy(scores, seconds),
        "tau": metrics.kendall_tau(scores, seconds),
    }


def compare(
    groups: Sequence[Measured],
    networks: dict[str, str],
    weights: dict[str, int],
    scorers: dict[str, Scorer],
    *,
    count: int,
) -> list[dict[str, Any]]:
    """A result line for each method and workload."""
    by_key = {group.key: group for group in groups}
    lines: list[dict[str, Any]] = []
    for number, held_out in enumerate(folds(networks, count)):
        out = set(held_out)
        train, test = [g for g in groups if g.key not in out], [by_key[key] for key in held_out]
        for method, scorer in scorers.items():
            for draw in range(DRAWS if method == RANDOM else 1):
                found = scorer(train, test)
                for group in test:
                    scores = np.asarray(found[group.key], dtype=np.float64)
                    if scores.shape != (len(group.steps),):
                        raise ValueError(
                            f"{method}: scores {scores.shape} for {len(group.steps)} programs of {group.key}"
                        )
                    lines.append(
                        {
                            "method": method,
                            "fold": number,
                            "draw": draw,
                            "network": networks[group.key],
                            "weight": weights[group.key],
                            "workload_key": group.key,
                            "programs": len(scores),
                            "best": float(np.nanmin(group.seconds)),
                            **evaluate(scores, group.seconds),
                        }
                    )
            logger.info("fold %d of %d: %s", number + 1, count, method)
    return lines


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """The comparison: means over workloads, and TenSet's and TLP's network-level top-k scores."""
    head = [
        "method",
        "top-1",
        "top-5",
        "pairs",
        "Kendall tau",
        "networks top-1",
        "top-5",
        "pooled top-1",
        "top-5",
    ]
    rows = []
    for method in dict.fromkeys(line["method"] for line in lines):
        mine = [line for line in lines if line["method"] == method]
        # a number that is not defined is null in a results file
        cells = [
            f"{np.nanmean([np.nan if line[k] is None else line[k] for line in mine]):.3f}" for k in COLUMNS
        ]
        for by in (("draw", "network"), ("draw",)):
            parts: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
            for line in mine:
                parts.setdefault(tuple(line[name] for name in by), []).append(line)
            cells += [f"{np.mean([weighted(part, k) for part in parts.values()]):.3f}" for k in (1, 5)]
        rows.append([method, *cells])
    workloads = {line["workload_key"]: line["programs"] for line in lines}
    networks, dealt = ({line[name] for line in lines} for name in ("network", "fold"))
    note = (
        f"{len(workloads)} workloads, {sum(workloads.values())} programs, {len(networks)} networks, "
        f"{len(dealt)} folds by network. "
        "Means over workloads, a failed program counting as infinitely slow; then, without the failed ones, "
        "the weighted top-k score of each network, averaged (as TenSet does), and of all networks pooled (as "
        "TLP does)."
    )
    return Table(title="Ranking of unseen networks' programs (offline)", head=head, rows=rows, note=note)


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """The comparison table alone, as a page."""
    return replace(table(lines), level=1).markdown() + "\n"


def weighted(lines: Sequence[dict[str, Any]], k: int) -> float:
    """sum w best / sum w chosen over workloads, among the programs that ran."""
    best = sum(line["weight"] * line["best"] for line in lines)
    return best / sum(line["weight"] * line["best"] / line[f"ran{k}"] for line in lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=(__doc__ or "")[:120])
    parser.add_argument("--records", action="append", required=True, help="tuning logs or folders of them")
    parser.add_argument("--workloads", type=Path, required=True, help="the open workloads file of the logs")
    parser.add_argument(
        "--methods", default="random,plain", help="of random, plain, tlp, stock, wmsched (%(default)s)"
    )
    parser.add_argument("--scorer", action="append", default=[], metavar="NAME=MODULE:FUNCTION")
    parser.add_argument("--folds", type=int, default=5, help="0: one network at a time (%(default)s)")
    parser.add_argument("--least", type=int, default=10, help="programs a workload must have (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="result lines, JSON")
    parser.add_argument("--md", type=Path, help="the table")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")

    content = options.workloads.read_bytes()
    rows = json.loads(gzip.decompress(content) if options.workloads.suffix == ".gz" else content)
    described = {row["workload_key"]: row for row in reversed(rows)}  # the first network that has it
    groups = [
        group
        for group in records.read(options.records).values()
        if group.key in described and np.isfinite(group.seconds).sum() >= options.least
    ]
    networks = {group.key: described[group.key]["network"] for group in groups}
    weights = {group.key: int(described[group.key]["weight"]) for group in groups}
    known = {
        RANDOM: random_scorer(),
        "plain": plain_scorer,
        "tlp": tlp_scorer,
        "stock": stock_scorer(groups, described),
        "wmsched": wmsched_scorer(groups, described),
    }
    scorers: dict[str, Scorer] = {}
    for method in filter(None, options.methods.split(",")):
        if method not in known:
            parser.error(f"no method {method!r}; there are {', '.join(known)}, and --scorer")
        scorers[method] = known[method]
    for text in options.scorer:
        name, _, where = text.partition("=")
        scorers[name] = imported_scorer(where)
    lines = compare(groups, networks, weights, scorers, count=options.folds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = {key: value for key, value in machine.describe().items() if key in ("versions", "git")}
    with options.out.open("w", encoding="utf-8") as file:
        for line in lines:  # JSON has no NaN: null where a number is not defined
            defined = {key: None if value != value else value for key, value in line.items()}
            file.write(json.dumps({"kind": "offline"} | defined | about, allow_nan=False) + "\n")
    text = markdown(lines)
    if options.md:
        options.md.write_text(text, encoding="utf-8")
    print(text)
    return 0
