"""Training of G: rows of every measured candidate, cross-validation by network, then a fit on all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmsched.base.errors import DatasetError
from wmsched.features.hardware import hardware_features
from wmsched.learn.data.dataset import ranked
from wmsched.learn.data.splits import dealt, networks_of, together
from wmsched.learn.evaluate import metrics
from wmsched.model.external_memory import stored
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import STATES, RowBuilder

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel

MIN_MEASURED = 2  # programs of an evaluated workload
MIN_FOLDS = 3  # one to test, one to stop on, one to train on


def build_groups(
    dataset: Dataset,
    *,
    encoder: StateEncoder | None = None,
    transition: TransitionModel | None = None,
    state: str = "predicted",
    phi: bool = True,
    disturbed: bool = False,
    rows_in: Path | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> list[RankGroup]:
    """Return one group a workload, with the columns of :class:`wmsched.model.rows.RowBuilder`.

        A group's `network` names the set that stays on one side of a split, see
        `wmsched.learn.data.splits.together`.

    Parameters
    ----------
    state : "predicted": the terminal state that F predicts; "initial": E(s0), the ablation without a
        transition; "none": no state, which needs neither E nor F
    phi : False leaves the action features out
    disturbed : whether to keep records that a noise check marked as disturbed; unchecked records always stay
    rows_in : folder of the rows, a file a group; None: in memory

    Raises
    ------
    DatasetError : the dataset has no records, or only disturbed ones
    """
    if state not in STATES:
        raise ValueError(f"state={state!r} is none of {', '.join(STATES)}")
    builder = RowBuilder(encoder=encoder, transition=transition, state=state, phi=phi)  # as in inference
    groups: list[RankGroup] = []
    workloads = dataset.workloads()
    # a program with different networks on different machines, or none, unites them
    keys = [workload.key for workload in workloads]
    networks = together(list(zip(networks_of(workloads), keys, strict=True)))
    left_out = 0
    for number, (workload, network) in enumerate(zip(workloads, networks)):
        trajectories, count = ranked(dataset, workload.id, disturbed=disturbed)
        left_out += count
        if not trajectories:
            continue
        try:
            text = dataset.initial(workload.id) if builder.dim else ""
        except DatasetError:  # not replayable: no state, as in a search
            text = ""
        steps = [trajectory.steps for trajectory in trajectories]
        rows = builder.rows(workload, builder.initial(text), hardware_features(workload), steps)
        seconds = np.array([trajectory.measurement.seconds for trajectory in trajectories], np.float64)
        group = RankGroup(workload.id, rows, seconds, network, builder.slowdown)
        groups.append(group if rows_in is None else stored(group, rows_in / f"{workload.id}.npy"))
        if log is not None and (number + 1) % 50 == 0:
            log({"rows_of": number + 1, "of": len(workloads)})
    if left_out and log is not None:
        log({"disturbed_left_out": left_out})
    if not groups:
        why = f" but {left_out} of a disturbed machine; --keep-disturbed takes them" if left_out else ""
        raise DatasetError(f"{dataset.root}: no records to train a ranker on{why}")
    return groups


def by_network(groups: Sequence[RankGroup]) -> bool:
    """Return whether there are enough networks to hold whole ones out."""
    return len({group.network or group.key for group in groups}) >= MIN_FOLDS


def deal(
    groups: Sequence[RankGroup], folds: int, *, programs: Mapping[str, str] | None = None
) -> list[list[int]]:
    """Return the indices of the groups in each fold: whole networks together, the largest first.

        One or two networks are split by program instead.

    Parameters
    ----------
    programs : the program of each group by its key, if machines share programs; None: all differ
    """
    names = [group.network or group.key for group in groups]
    if not by_network(groups):
        first: dict[str, str] = {}  # a program's key on its first machine
        names = [first.setdefault((programs or {}).get(group.key, group.key), group.key) for group in groups]
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        members.setdefault(name, []).append(number)
    return dealt(members, folds)


def measure(ranker: Ranker, groups: Sequence[RankGroup]) -> dict[str, float]:
    """Return means over workloads of top-1, top-5 and pairwise accuracy, without unmeasured workloads."""
    found: dict[str, list[float]] = {"top1": [], "top5": [], "pairwise": []}
    for group in groups:
        if np.isfinite(group.seconds).sum() < MIN_MEASURED:
            continue
        scores = ranker.margins(group.rows)
        found["top1"].append(metrics.top_k_score(scores, group.seconds, 1))
        found["top5"].append(metrics.top_k_score(scores, group.seconds, 5))
        found["pairwise"].append(metrics.pairwise_accuracy(scores, group.seconds))
    means = {name: float(np.nanmean(values)) if values else float("nan") for name, values in found.items()}
    return means | {"workloads": len(found["top1"])}


def evaluate(
    groups: Sequence[RankGroup],
    config: RankerConfig,
    *,
    folds: int = 5,
    programs: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Cross-validate by network: a G that saw neither a workload nor its network ranks it.

        Fewer than three networks are split by program; G then has seen other programs of the network. E and F
        are those of the rows: they may have seen held-out programs, never their times.

    Returns
    -------
    dict
        Means over workloads of `measure`, and `rounds`: the mean number of trees after early stopping on
        part of the training networks (never on the test fold).
    """
    parts = deal(groups, folds, programs=programs)
    if len(parts) < MIN_FOLDS:
        raise DatasetError(
            f"{len(groups)} workloads in {len(parts)} parts: an evaluation takes at least three, "
            "one to measure, one to stop on, one to train on"
        )
    lines, sizes, rounds = [], [], []
    for number, held in enumerate(parts):
        others = [g for i, g in enumerate(groups) if i not in set(held)]
        again = config
        if config.patience:
            stop = set(parts[(number + 1) % len(parts)])
            train = [g for i, g in enumerate(groups) if i not in stop and i not in set(held)]
            stopped = Ranker.fit(train, config, valid=[groups[i] for i in sorted(stop)])
            again = dataclasses.replace(config, rounds=max(1, stopped.rounds))
        ranker = Ranker.fit(others, again)
        line = measure(ranker, [groups[i] for i in held])
        sizes.append(line.pop("workloads"))
        lines.append(line)
        rounds.append(ranker.rounds)
    weights = np.array(sizes, dtype=float)
    result = {}
    for name in lines[0]:
        values = np.array([line[name] for line in lines])
        known = np.isfinite(values) & (weights > 0)
        result[name] = (
            float(np.average(values[known], weights=weights[known])) if known.any() else float("nan")
        )
    return result | {"workloads": float(weights.sum()), "rounds": float(np.mean(rounds))}


def train_ranker(
    groups: Sequence[RankGroup],
    *,
    config: RankerConfig | None = None,
    folds: int = 5,
    programs: Mapping[str, str] | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Ranker, dict[str, float]]:
    """Cross-validate, then train on everything with the number of trees that the folds found.

    Parameters
    ----------
    programs : as in :func:`deal`

    Returns
    -------
    ranker, metrics
        `metrics` is empty if there are too few programs, or a fold has no order to learn.
    """
    config = config or RankerConfig()
    found: dict[str, float] = {}
    try:
        found = evaluate(groups, config, folds=folds, programs=programs)
        config = dataclasses.replace(config, rounds=max(1, round(found["rounds"])))
    except DatasetError as error:  # a ranker of everything is still possible
        if log is not None:
            log({"not_evaluated": str(error)})
        # no folds to choose a number: a set this small needs few
        config = dataclasses.replace(config, rounds=max(1, config.rounds // 4))
    ranker = Ranker.fit(groups, config)
    if log is not None:
        log({"ranker": found})
    return ranker, found
