"""Methods that adapt G to another machine's records, and its cross-validated scores there.

"continue" adds trees for the new records to the bundle's, "mix" trains on old and new ones, "scratch" on the
new ones alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wmsched.base.errors import DatasetError
from wmsched.learn.evaluate import metrics
from wmsched.learn.evaluate.cross_validation import deal
from wmsched.model.groups import RankGroup, informative
from wmsched.model.ranker import Ranker, _matrix, _parameters

METHODS = ("continue", "mix", "scratch")
INNER_FOLDS = 3  # of the new workloads, to choose the number of trees
MAX_ADDED_TREES = 200
TREES_PER_CHECK = 5  # between two evaluations of the held-out fold
FALLBACK_TREES = 10  # added if there are too few workloads to hold any out
PATIENCE = 30  # trees without gain before training from scratch stops


def fitting(
    ranker: Ranker, method: str, old: Sequence[RankGroup] = (), *, weight: int = 4
) -> Callable[[Sequence[RankGroup]], Ranker]:
    """Return a function from new groups to the adapted ranker, by one of `METHODS`."""
    if method == "continue":
        return lambda new: continued(ranker, new)
    config = ranker.config  # training chose its number of trees
    if method == "mix":
        return lambda new: Ranker.fit([*old, *(_informative(new) * weight)], config)
    return lambda new: scratch(ranker, new)


def continued(ranker: Ranker, new: Sequence[RankGroup]) -> Ranker:
    """Return the ranker with trees added for new groups; unchanged if no number of trees helps.

    Raises
    ------
    DatasetError
        No group has two candidates of different speed.
    """
    new = _informative(new)
    boosters = []
    for member, booster in enumerate(ranker.boosters):
        curves = [_accuracies(ranker, member, train, held) for train, held in _parts(new)]
        added = TREES_PER_CHECK * _worth(np.concatenate(curves, axis=1)) if curves else FALLBACK_TREES
        boosters.append(_boost(ranker, member, new, added) if added else booster)
    most = max(booster.num_boosted_rounds() for booster in boosters)
    config = dataclasses.replace(ranker.config, rounds=most)
    return Ranker(config, boosters, ranker.spreads, slowdown=ranker.slowdown)


def scratch(ranker: Ranker, new: Sequence[RankGroup]) -> Ranker:
    """Return a ranker of the same settings trained on the new groups alone, with early stopping."""
    new = _informative(new)
    config = dataclasses.replace(ranker.config, rounds=MAX_ADDED_TREES, patience=PATIENCE)
    counts = [Ranker.fit(train, config, valid=held).rounds for train, held in _parts(new)]
    rounds = max(1, round(float(np.mean(counts)))) if counts else 50
    return Ranker.fit(new, dataclasses.replace(ranker.config, rounds=rounds))


def _parts(new: Sequence[RankGroup]) -> Iterator[tuple[list[RankGroup], list[RankGroup]]]:
    """Iterate over (training, held-out) folds, each workload held out once; none if there are too few."""
    if len({group.key for group in new}) < INNER_FOLDS:
        return
    for held in deal(new, folds=INNER_FOLDS, by="workload"):
        out = set(held)
        yield [group for n, group in enumerate(new) if n not in out], [new[n] for n in held]


def cross(
    groups: Sequence[RankGroup],
    fit: Callable[[Sequence[RankGroup]], Ranker] | None,
    frozen: Ranker,
    *,
    folds: int = 5,
) -> list[np.ndarray]:
    """Return scores of each group by a ranker trained on other workloads; by `frozen` without a fit."""
    result: dict[int, np.ndarray] = {}
    for held in deal(groups, folds=folds, by="workload"):
        out = set(held)
        train = [group for n, group in enumerate(groups) if n not in out]
        ranker = frozen if fit is None else fit(train)
        result |= {n: ranker.margins(groups[n].rows) for n in held}
    return [result[n] for n in range(len(groups))]


def _informative(groups: Sequence[RankGroup]) -> list[RankGroup]:
    kept = [group for group in groups if informative(group)]
    if not kept:
        raise DatasetError(
            "no workload of the new records has two measured programs of different speed; measure more"
        )
    return kept


def _boost(ranker: Ranker, member: int, new: Sequence[RankGroup], rounds: int) -> Any:
    """Return a member with `rounds` more trees, boosted on new groups from its margins."""
    import xgboost as xgb

    config = ranker.config
    objective = config.objectives[member // config.n_models]  # members are ordered by objective
    return xgb.train(
        _parameters(config, objective, config.seed + 1000 * member + 1),
        _matrix(new, config, objective),
        num_boost_round=rounds,
        xgb_model=ranker.boosters[member].copy(),
        verbose_eval=False,
    )


def _accuracies(
    ranker: Ranker, member: int, train: Sequence[RankGroup], held: Sequence[RankGroup]
) -> np.ndarray:
    """Return pairwise accuracy [R, G] of held-out groups after 0, TREES_PER_CHECK, ... trees on `train`."""
    booster = _boost(ranker, member, train, MAX_ADDED_TREES)
    start = ranker.boosters[member].num_boosted_rounds()
    rows, ends = np.concatenate([g.features for g in held]), np.cumsum([len(g.seconds) for g in held])[:-1]
    lines = []
    for rounds in range(0, MAX_ADDED_TREES + 1, TREES_PER_CHECK):
        margins = booster.inplace_predict(
            rows, iteration_range=(0, start + rounds), predict_type="margin", validate_features=False
        )
        parts = zip(np.split(margins, ends), held)
        lines.append([metrics.pairwise_accuracy(part, group.even) for part, group in parts])
    return np.array(lines)


def _worth(accuracies: np.ndarray) -> int:
    """Return the best row of [R, G]; 0 if its gain over the first is within two standard errors.

    Two errors rather than one, because it is the best of many: noise alone has a best row too.
    """
    gain = accuracies - accuracies[0]
    best = int(np.argmax(gain.mean(1)))
    error = float(gain[best].std() / max(1.0, gain.shape[1] - 1) ** 0.5)
    return best if gain[best].mean() > 2 * error else 0
