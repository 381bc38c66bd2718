"""Learning curve of fine-tuning: ranking quality against records of a new machine, for each method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.learn.evaluate.cross_validation import deal
from wmsched.learn.evaluate.quality import Estimate, estimate, number, qualities
from wmsched.learn.training.adaptation import METHODS, cross, fitting
from wmsched.learn.training.finetune import FinetuneOptions, Log, groups_of, old_groups, take, trees
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker

SIZES = (25, 50, 100, 200, 400, 800)  # records
LOGGED_FIELDS = ("method", "records", "top1", "pairwise")


def learning_curve(
    options: FinetuneOptions,
    *,
    sizes: Sequence[int] = SIZES,
    draws: int = 3,
    folds: int = 5,
    log: Log | None = None,
) -> list[dict[str, Any]]:
    """Return ranking quality on held-out workloads of the new machine, by method and number of records.

        Each fold draws whole training workloads up to `size` records, `draws` times.

    Returns
    -------
    list of dict
        method, records, and an `Estimate` of each of top1, top5, pairwise, tau over the workloads (means over
        draws); "frozen" has 0 records, and the others the differences to it, workload by workload, as
        "top1_gain" and "pairwise_gain"
    """
    from wmsched.model.world_model import WorldModel

    model = WorldModel.from_pretrained(options.bundle)
    ranker = trees(model)
    groups = groups_of(model, options.dataset, log, bundle=options.bundle)
    old = old_groups(model, options, groups, log)
    base = _values([cross(groups, None, ranker)], groups)
    lines: list[dict[str, Any]] = [{"method": "frozen", "records": 0} | _estimates(base)]
    parts = deal(groups, folds=folds, by="workload")
    smallest = min(sum(len(groups[n].rows) for m in parts if m is not p for n in m) for p in parts)
    for size in [*(size for size in sizes if size < smallest), smallest]:
        for method in METHODS:
            if method == "mix" and not old:
                continue
            fit, whole = fitting(ranker, method, old, weight=options.weight), size == smallest
            drawn = [
                cross(groups, drawing(fit, size, k), ranker, folds=folds)
                for k in range(1 if whole else draws)
            ]
            found = _values(drawn, groups)
            gains = {f"{key}_gain": estimate(found[key] - base[key]) for key in ("top1", "pairwise")}
            lines.append({"method": method, "records": size} | _estimates(found) | gains)
            if log is not None:
                log({key: getattr(lines[-1][key], "mean", lines[-1][key]) for key in LOGGED_FIELDS})
    return lines


def curve_markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Return the learning curve as a Markdown table."""
    heads = {"top1": "top-1", "top5": "top-5", "pairwise": "pairs", "tau": "Kendall tau"}
    gains = {"top1_gain": "top-1 less frozen's", "pairwise_gain": "pairs less frozen's"}
    names = [*heads.values(), *gains.values()]
    rows = ["| records | G | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 2)]
    for line in lines:
        cells = [line[key].text() for key in heads]
        cells += [line[key].text() if key in line else "" for key in gains]
        rows.append(f"| {line['records']} | {line['method']} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def curve_of(written: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of `learning_curve` from a ``--json`` file; raise KeyError if it is no curve."""
    return [
        {key: _estimate(value) if isinstance(value, dict) else value for key, value in line.items()}
        for line in written["curve"]
    ]


def _estimate(value: Mapping[str, Any]) -> Estimate:
    mean, low, high = (number(value[key]) for key in ("mean", "low", "high"))
    return Estimate(mean, low, high, value["workloads"])


def drawing(
    fit: Callable[[Sequence[RankGroup]], Ranker], size: int, seed: int
) -> Callable[[Sequence[RankGroup]], Ranker]:
    """Return `fit` restricted to a draw of `size` records."""
    return lambda train: fit(take(train, size, seed=seed))


def _values(
    drawn: Sequence[Sequence[np.ndarray]], groups: Sequence[RankGroup]
) -> dict[str, NDArray[np.float64]]:
    """Return each metric of each workload, a mean over the draws: [W]."""
    found = [qualities(scores, [group.seconds for group in groups]) for scores in drawn]
    return {
        key: np.mean([line[key] for line in found], axis=0) for key in ("top1", "top5", "pairwise", "tau")
    }


def _estimates(values: dict[str, NDArray[np.float64]]) -> dict[str, Estimate]:
    return {key: estimate(value) for key, value in values.items()}
