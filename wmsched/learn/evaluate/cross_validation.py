"""Cross-validation: each workload's scores by a ranker that never saw it, k folds by workload or network."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.base.errors import DatasetError
from wmsched.learn.data.splits import dealt, together
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig

BY = ("network", "workload")
Scores = list[NDArray[np.float32]]


class Fitted(Protocol):
    """A trained ranker: margins float32 [N] of rows [N, F] of one workload."""

    def margins(self, rows: ArrayLike) -> NDArray[np.float32]: ...


Fit = Callable[[Sequence[RankGroup], Sequence[RankGroup]], Fitted]
"""(groups to train on, groups to stop on) -> a ranker that may use both, but fits its size to the second."""


def deal(groups: Sequence[RankGroup], *, folds: int, by: str = "network") -> list[list[int]]:
    """Return the indices of the groups in each fold; the largest network goes first, to the smallest fold.

    Parameters
    ----------
    by : "network" keeps networks whole, and networks that share a program together; "workload" deals programs
        one by one, in the order of a hash of the key

    Raises
    ------
    DatasetError
        Fewer than three folds: one to measure, one to stop on, one to train on.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is none of {', '.join(BY)}")
    names = [group.key for group in groups]
    if by == "network":
        names = together([(group.network, group.key) for group in groups])
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        members.setdefault(name, []).append(number)
    parts = dealt(members, folds, key=None if by == "network" else _hash)
    if len(parts) < 3:
        what = f"{len(members)} {by}s in {folds} folds"
        raise DatasetError(
            f"{what}: an evaluation takes at least three folds, one to measure, one to stop on, one to train "
            "on; give --folds 3 or more, and --by workload where there are few networks"
        )
    return parts


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def boosted(config: RankerConfig) -> Fit:
    """Return the fit of `wmsched train`. With patience, early stopping on the stopping groups finds the
    number of trees; a second fit includes these groups.
    """

    def fit(train: Sequence[RankGroup], stop: Sequence[RankGroup]) -> Ranker:
        if not config.patience:
            return Ranker.fit([*train, *stop], config)
        first = Ranker.fit(train, config, valid=stop)
        again = dataclasses.replace(config, rounds=max(1, first.rounds))
        return Ranker.fit([*train, *stop], again)

    return fit


def out_of_fold(
    groups: Sequence[RankGroup],
    fit: Fit,
    *,
    folds: int = 5,
    by: str = "network",
    on_fold: Callable[[int], None] | None = None,
) -> Scores:
    """Return scores [N] of each group by a ranker that saw neither it nor (by network) its network.

    Parameters
    ----------
    on_fold : receives the number of each finished fold
    """
    parts = deal(groups, folds=folds, by=by)
    result: list[NDArray[np.float32] | None] = [None] * len(groups)
    for number, held in enumerate(parts):
        stop = parts[(number + 1) % len(parts)]
        out = {*held, *stop}
        ranker = fit([g for n, g in enumerate(groups) if n not in out], [groups[n] for n in stop])
        for n in held:
            result[n] = ranker.margins(groups[n].rows)
        if on_fold is not None:
            on_fold(number)
    return [scores for scores in result if scores is not None]
