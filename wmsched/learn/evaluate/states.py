"""Checks of E's states and F's predictions (sections 3.3 and 3.4), apart from ranking.

Each number is a mean over workloads with its interval, separately for training and held-out workloads of E
and F.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.embeddings import EmbeddingCache
from wmsched.learn.data.inputs import TaskInputs
from wmsched.learn.data.splits import split_workloads
from wmsched.learn.data.texts import TextPool, states_of
from wmsched.learn.evaluate import states
from wmsched.learn.evaluate.quality import Estimate, estimate
from wmsched.model.encoder import effective_rank, two_views
from wmsched.model.world_model import WorldModel
from wmsched.schedules.types import Trajectory, Workload

if TYPE_CHECKING:
    from wmsched.model.encoder import StateEncoder
    from wmsched.model.transition import TransitionModel

ROLLOUT_STEPS = 8  # K: steps from s0 reported one by one
LENGTH_BINS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 10_000))  # lengths of whole rollouts
SAME_STATE_DISTANCE = 1e-3  # Euclidean; nearer states count as equal
Array = NDArray[np.float64]


def terminal_shape(tasks: Sequence[TaskInputs]) -> dict[str, Any]:
    """Return collapse checks and geometry of the true terminal states.

    Returns
    -------
    dict
        dim; effective_rank: exp(entropy of the covariance eigenvalues) of all states; effective_rank_within:
        the same after subtracting each workload's mean; cosine_intra, cosine_inter; speed_tau: Kendall's tau
        within a workload of state distance and difference of log seconds, above 0 if near states have
        similar latency
    """
    from scipy.stats import kendalltau

    parts, times = [], []
    for task in tasks:
        keep = task.replayed & np.isfinite(task.seconds)
        if keep.sum() >= 3:
            parts.append(task.true[keep].astype(np.float64))
            times.append(np.log(task.seconds[keep]))
    if len(parts) < 2:
        return {}
    everything = np.concatenate(parts)
    centred = np.concatenate([z - z.mean(0) for z in parts])
    taus, intra = [], []
    for z, t in zip(parts, times):
        i, j = np.triu_indices(len(z), 1)
        taus.append(float(kendalltau(np.linalg.norm(z[i] - z[j], axis=1), np.abs(t[i] - t[j])).statistic))
        intra.append(float((z[i] * z[j]).sum(1).mean()))
    means = np.stack([z.mean(0) for z in parts])
    i, j = np.triu_indices(len(means), 1)
    return {
        "states": len(everything),
        "dim": everything.shape[1],
        "effective_rank": effective_rank(everything),
        "effective_rank_within": effective_rank(centred),
        "cosine_intra": estimate(np.array(intra)),
        "cosine_inter": float((means[i] * means[j]).sum(1).mean()),
        "speed_tau": estimate(np.array(taus)),
    }


@torch.no_grad()
def retrieval(
    dataset: Dataset, encoder: StateEncoder, ids: Sequence[str], *, states: int = 8, seed: int = 0
) -> dict[str, Estimate]:
    """Return how often a state's second dropout view is nearer than other states' second views.

    Parameters
    ----------
    ids : workloads, each with at most `states` of its states

    Returns
    -------
    dict
        intra: it beats every other state of its workload; inter: every state of the other workloads;
        intra_mrr: mean reciprocal rank in its workload
    """
    pool = TextPool.build(encoder, [states_of(dataset, name, states, seed) for name in ids])
    owner = np.full(len(pool.chunks), -1)
    for number, texts in enumerate(pool.groups):
        owner[texts] = number
    if len(pool.groups) < 2:
        return {}
    first, second = [], []
    was_training = encoder.training
    try:
        encoder.train()  # for dropout, which makes the views
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for begin in range(0, len(pool.chunks), 16):
                a, b = two_views(encoder, pool.chunks[begin : begin + 16])
                first.append(a.numpy())
                second.append(b.numpy())
    finally:
        encoder.train(was_training)
    cosines = np.concatenate(first) @ np.concatenate(second).T
    own = (owner[:, None] == owner[None, :]) & ~np.eye(len(owner), dtype=bool)
    true = cosines.diagonal()
    better = np.where(own, cosines > true[:, None], False).sum(1)
    hits = {
        "intra": better == 0,
        "inter": np.where(owner[:, None] != owner[None, :], cosines, -2).max(1) < true,
        "intra_mrr": 1.0 / (1 + better),
    }
    several = own.any(1)  # a workload's only state has no intra-file negative
    return {
        name: estimate(_by_owner(values.astype(float), owner, several if name != "inter" else None))
        for name, values in hits.items()
    }


def terminal_retrieval(tasks: Sequence[TaskInputs]) -> dict[str, Estimate]:
    """Return how often the predicted terminal state is nearest to the true one in its workload.

    Returns
    -------
    dict
        top1, mrr (mean reciprocal rank), chance (top1 of a guess), cosine to the true one, still: the cosine
        of a model that predicts the initial state
    """
    lines: dict[str, list[float]] = {name: [] for name in ("top1", "mrr", "chance", "cosine", "still")}
    for task in tasks:
        keep = task.replayed
        if not keep.any() or not task.predicted.shape[1]:
            continue
        true, predicted = task.true[keep], task.predicted[keep]
        distinct = np.unique(true.round(4), axis=0)  # equal programs are one candidate
        if len(distinct) < 2:
            continue
        gap = np.linalg.norm(predicted - true, axis=1)
        others = np.linalg.norm(predicted[:, None] - distinct[None], axis=2)
        rank = (others < gap[:, None] - SAME_STATE_DISTANCE).sum(1)
        lines["top1"].append(float((rank == 0).mean()))
        lines["mrr"].append(float((1 / (1 + rank)).mean()))
        lines["chance"].append(1 / len(distinct))
        lines["cosine"].append(float((predicted * true).sum(1).mean()))
        lines["still"].append(float((true @ task.initial).mean()))
    return {name: estimate(np.array(values)) for name, values in lines.items()}


@torch.no_grad()
def rollouts(
    dataset: Dataset,
    encoder: StateEncoder,
    transition: TransitionModel,
    ids: Sequence[str],
    *,
    trajectories: int = 4,
    embeddings: Path | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Compare rollouts of whole trajectories from s0 with the true states.

    Parameters
    ----------
    trajectories : replayed records of each workload, evenly spread over its log

    Returns
    -------
    dict
        cosine, still: [K] estimates after 1..K steps from s0 (still: of the initial state); one_step and
        one_step_still: from each true state to the next; by_length: cosine and still after the last step, for
        trajectories of each length
    """
    cache = EmbeddingCache(encoder, embeddings, precision="auto")
    names = [*(f"cosine{k}" for k in range(ROLLOUT_STEPS)), *(f"still{k}" for k in range(ROLLOUT_STEPS))]
    names += ["one", "one_still", *(f"{w}{b}" for w in ("end", "end_still") for b in range(len(LENGTH_BINS)))]
    lines: dict[str, list[float]] = {name: [] for name in names}
    count = 0
    for place, name in enumerate(ids):
        chosen = _spread([t for t in dataset.trajectories(name) if _complete(t)], trajectories)
        if not chosen:
            continue
        texts = dataset.states(name)
        cache.add(texts[key] for t in chosen for key in t.states)
        own: dict[str, list[float]] = {key: [] for key in names}
        for t in chosen:
            z = torch.from_numpy(np.stack([cache[texts[key]] for key in t.states]))
            actions = transition.project(torch.from_numpy(encoder.encode_actions(t.action_texts)))
            predicted = transition.rollout(
                z[:1], actions[None], torch.ones(1, len(actions), dtype=torch.bool)
            )[0]
            to_true = (predicted * z[1:]).sum(1).tolist()
            still = (z[:1] * z[1:]).sum(1).tolist()
            for k in range(min(ROLLOUT_STEPS, len(to_true))):
                own[f"cosine{k}"].append(to_true[k])
                own[f"still{k}"].append(still[k])
            own["one"].append(float((transition.step(z[:-1], actions) * z[1:]).sum(1).mean()))
            own["one_still"].append(float((z[:-1] * z[1:]).sum(1).mean()))
            bin_ = next(b for b, (low, high) in enumerate(LENGTH_BINS) if low <= len(to_true) <= high)
            own[f"end{bin_}"].append(to_true[-1])
            own[f"end_still{bin_}"].append(still[-1])
            count += 1
        for key, values in own.items():
            if values:
                lines[key].append(float(np.mean(values)))
        if log is not None and (place + 1) % 25 == 0:
            log({"rollouts_of": place + 1, "of": len(ids)})
    found = {key: estimate(np.array(values, np.float64)) for key, values in lines.items()}
    return {
        "trajectories": count,
        "cosine": [found[f"cosine{k}"] for k in range(ROLLOUT_STEPS)],
        "still": [found[f"still{k}"] for k in range(ROLLOUT_STEPS)],
        "one_step": found["one"],
        "one_step_still": found["one_still"],
        "by_length": [
            {"from": low, "to": high, "cosine": found[f"end{b}"], "still": found[f"end_still{b}"]}
            for b, (low, high) in enumerate(LENGTH_BINS)
        ],
    }


def _complete(trajectory: Trajectory) -> bool:
    texts = trajectory.action_texts
    return bool(texts) and len(trajectory.states) == len(texts) + 1


def _spread(items: Sequence[Trajectory], most: int) -> list[Trajectory]:
    places = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[n] for n in places]


def _by_owner(values: Array, owner: NDArray[np.int64], where: NDArray[np.bool_] | None) -> Array:
    """Return means of values by owner."""
    numbers = np.unique(owner if where is None else owner[where])
    return np.array([values[owner == n].mean() for n in numbers])


# Checks of E and F, for training and held-out workloads.


MAX_CHECKED_WORKLOADS = 40  # of each part; more would not narrow a conclusion


def check_states(
    dataset: Dataset,
    model: WorldModel,
    tasks: Sequence[TaskInputs],
    *,
    trajectories: int,
    embeddings: Path | None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Return E's retrieval and shape, F's terminal retrieval and rollouts; {part: numbers}.

    The parts are "trained on" and "held out" if the bundle's training split these data, and "not trained
    on" for unseen data.
    """
    assert model.encoder is not None
    result: dict[str, Any] = {}
    for part, ids in parts(dataset, model).items():
        own = [task for task in tasks if task.key in set(ids)]
        if not own:
            continue
        few = _few(ids, MAX_CHECKED_WORKLOADS)
        line: dict[str, Any] = {"workloads": len(own), "shape": states.terminal_shape(own)}
        line["retrieval"] = states.retrieval(dataset, model.encoder, few)
        if model.transition is not None:
            line["terminal"] = states.terminal_retrieval(own)
            line["rollouts"] = states.rollouts(
                dataset, model.encoder, model.transition, few,
                trajectories=trajectories, embeddings=embeddings, log=log,
            )  # fmt: skip
        result[part] = line
    return result


def parts(dataset: Dataset, model: WorldModel) -> dict[str, list[str]]:
    """Return workload ids by part: what E and F have seen of them."""
    seen = model.about.get("parts_fingerprint") or model.about.get("fingerprint", {})
    known = set(seen.get("workloads", ()))
    mine: list[Workload] = []
    others: list[Workload] = []
    for workload in dataset.workloads():
        (mine if _program(workload) in known else others).append(workload)
    result = {"not trained on": [workload.id for workload in others]}
    stored = model.about.get("settings", {}).get("encoder_training", {})
    if {_program(workload) for workload in mine} == known and stored:
        train, held = split_workloads(mine, fraction=stored["valid_fraction"], seed=stored["seed"])
        result |= {"held out": held, "trained on": train}
    else:  # a subset of the training data: its split is unknown
        result["trained on, or held out"] = [workload.id for workload in mine]
    return {name: ids for name, ids in result.items() if ids}


def _program(workload: Workload) -> str:
    return hashlib.sha256(workload.key.encode()).hexdigest()


def _few(ids: Sequence[str], most: int) -> list[str]:
    return list(ids)[:: -(-len(ids) // most)] if ids else []
