"""Does a task's own measurements help the ranker? ``python -m benchmarks.offline.online_learning
--data DIR``.

Measured records are told to the model in random order, in rounds, as a search would measure them, and what is
not told yet is ranked: by the frozen ranker, which never saw the task's network; by it with what `residual`
learns; and by trees that know nothing but what was told, as a stock cost model does (here on phi, not on its
own features).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wmsched.learn.evaluate.cross_validation import deal
from wmsched.learn.evaluate.metrics import pairwise_accuracy, regret
from wmsched.learn.evaluate.quality import as_json, number
from wmsched.model.groups import RankGroup, relative_speed
from wmsched.model.online import Residual
from wmsched.model.ranker import Ranker, RankerConfig

METHODS = ("frozen", "online", "from scratch")
ROUND = 16
TOLD = (16, 32, 64, 128)
LEAST_LEFT = 8  # records that are ranked; with fewer left the task says nothing

Floats = NDArray[np.float64]


Told = dict[tuple[int, str], tuple[float, float]]
"""By how many records were told and by method: pairwise accuracy and regret."""


def replay(ranker: Ranker, group: RankGroup, *, seed: int = 0) -> Told:
    """Pairwise accuracy and the regret of four picks among the records not told yet.

    Returns
    -------
    dict
        By how many were told and by method; empty for a task with too few records.
    """
    order = np.random.default_rng(seed).permutation(np.flatnonzero(np.isfinite(group.seconds)))
    rows, seconds = group.rows[order], group.seconds[order]
    margins, residual = ranker.margins(rows), Residual()
    found: Told = {}
    for end in range(ROUND, len(rows) - LEAST_LEFT + 1, ROUND):
        new, left = slice(end - ROUND, end), slice(end, None)
        residual.observe(rows[new], margins[new], seconds[new])
        if end not in TOLD:
            continue
        scores = {
            "frozen": margins[left],
            "online": residual.correct(rows[left], margins[left]),
            "from scratch": _scratch(rows[:end], seconds[:end], rows[left]),
        }
        for method, values in scores.items():
            quality = pairwise_accuracy(values, seconds[left]), regret(values, seconds[left], 4)
            found[end, method] = quality
    return found


def table(found: Sequence[Told]) -> str:
    """Means over tasks, the difference of online and frozen with two standard errors; Markdown."""
    lines = [
        "| told | tasks | "
        + " | ".join(f"{m}: pairs, regret of 4" for m in METHODS)
        + " | online - frozen |",
        "|---|---|" + "---|" * (len(METHODS) + 1),
    ]
    for told in TOLD:
        tasks = [task for task in found if (told, "online") in task]
        tasks = [task for task in tasks if not any(np.isnan(task[told, method][0]) for method in METHODS)]
        if len(tasks) < 2:
            continue
        means = [np.mean([task[told, method] for task in tasks], axis=0) for method in METHODS]
        gain = np.array([task[told, "online"][0] - task[told, "frozen"][0] for task in tasks])
        error = 2 * gain.std(ddof=1) / len(gain) ** 0.5
        cells = " | ".join(f"{pairs:.3f}, {100 * lost:.1f} %" for pairs, lost in means)
        lines.append(f"| {told} | {len(tasks)} | {cells} | {gain.mean():+.4f} ± {error:.4f} |")
    return "\n".join(lines)


def write(found: Sequence[Told], path: Path) -> None:
    """Keep what `table` is made of, a line a task and order; an undefined accuracy (NaN) as null."""
    tasks = [[[*key, *values] for key, values in task.items()] for task in found if task]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, as_json(tasks))) + "\n", encoding="utf-8")


def read(path: Path) -> list[Told]:
    """What `write` kept."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        {(told, method): (number(pairs), number(lost)) for told, method, pairs, lost in task}
        for task in lines
    ]


def _scratch(told: NDArray[np.float32], seconds: Floats, left: NDArray[np.float32]) -> NDArray[np.float32]:
    import xgboost as xgb

    parameters = {"objective": "reg:squarederror", "max_depth": 6, "eta": 0.2, "nthread": 1, "verbosity": 0}
    booster = xgb.train(parameters, xgb.DMatrix(told, label=relative_speed(seconds)), num_boost_round=60)
    predicted: NDArray[np.float32] = booster.inplace_predict(left, validate_features=False)
    return predicted


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    from wmsched.learn.data.dataset import Dataset
    from wmsched.learn.data.inputs import gather

    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline.online_learning", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a dataset that data_builder wrote")
    parser.add_argument("--folds", type=int, default=3, help="by network: a task's ranker never saw its own")
    parser.add_argument("--rounds", type=int, default=200, help="trees of each ranker")
    parser.add_argument("--seeds", type=int, default=3, help="orders of telling a task")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--json", type=Path, help="keep each task's numbers here, a line a task and order")
    options = parser.parse_args(argv)
    groups = [task.group("none", True) for task in gather(Dataset(options.data), true_states=False)]
    found = []
    for part in deal(groups, folds=options.folds):
        own = set(part)
        config = RankerConfig(rounds=options.rounds, threads=options.threads)
        ranker = Ranker.fit([group for n, group in enumerate(groups) if n not in own], config)
        for seed in range(options.seeds):
            found += [replay(ranker, groups[n], seed=seed) for n in part]
    if options.json is not None:
        write(found, options.json)
    print(table(found))


if __name__ == "__main__":
    main()
