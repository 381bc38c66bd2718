"""Training of F: multi-step rollouts in the frozen state space of E (section 3.4, Eqs 7 to 11).

States and action texts go through the frozen encoder once; training then indexes two tables. Rollouts are
windows of K steps from anywhere in a trajectory. A share of the batches has whole trajectories from s0,
because inference rolls out whole schedules. Every random choice depends on (seed, step), so a resumed run
repeats the draws of an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wmsched.learn.training.checkpoint import Clock, data_digest, read_settings
from wmsched.learn.training.loop import Loop
from wmsched.learn.training.rollouts import Negatives, Rollouts, Tables, build_tables
from wmsched.model.losses import transition_loss
from wmsched.model.transition import TransitionConfig, TransitionModel

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset
    from wmsched.model.encoder import StateEncoder

SAME_STATE_DISTANCE = 1e-3  # Euclidean; a nearer state counts as the true one, not as a negative


@dataclass(frozen=True)
class TransitionTraining:
    """Training settings of F."""

    seed: int = 0  # of the split (the same as E's), the initial weights and the batches
    steps: int = 4000  # batches in all
    epoch_steps: int = 500  # validate and write a metrics line every so many steps
    checkpoint_steps: int = 250  # write a checkpoint every so many steps
    batch: int = 128  # rollouts in a batch
    window: int = 8  # K, steps of a window
    full_rollout_share: float = 0.5  # of batches have whole trajectories from s0
    full_batch: int = 64  # rollouts in those
    longest: int = 64  # maximum steps of a whole trajectory
    cross_negatives: int = 8  # negatives a step from trajectories of any workload
    same_negatives: int = 8  # negatives a step from the workload's states at any depth
    sibling_negatives: int = 8  # negatives a step from the workload's states at the same depth: the hardest
    precision: str = "auto"  # of embedding the states, see StateEncoder.encode
    weight: float = 0.5  # lambda of Eq 11: matching versus ranking
    margin: float = 0.2  # gamma of Eq 10, in Euclidean distance of unit vectors
    learning_rate: float = 2e-3  # peak
    warmup: int = 100  # steps
    weight_decay: float = 0.01  # AdamW
    clip: float = 1.0  # largest gradient norm
    valid_fraction: float = 0.1  # share of workloads held out, by network
    valid_rollouts: int = 2048  # held-out windows, and whole trajectories, evaluated each epoch


def train_transition(
    dataset: Dataset,
    encoder: StateEncoder,
    *,
    config: TransitionConfig | None = None,
    training: TransitionTraining | None = None,
    out: str | Path,
    cache: str | Path | None = None,
    minutes: float | None = None,
    resume: bool = True,
    log: Callable[[dict[str, Any]], None] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> TransitionModel:
    """Train F and save it as the file ``out``, next to its metrics and checkpoint.

    Parameters
    ----------
    encoder : E, frozen here
    out : a path ending in .safetensors; its folder gets ``<stem>.metrics.jsonl`` and
        ``<stem>.checkpoint.safetensors``
    cache : directory for state embeddings, see :class:`EmbeddingCache`
    minutes, resume, log, on_step : as in :func:`wmsched.learn.training.train_encoder.train_encoder`

    Raises
    ------
    DatasetError : no trajectory has states;  BundleError : the checkpoint has other settings or data
    """
    config = config or TransitionConfig(features=encoder.feature_width, dim=encoder.config.dim)
    t = training or TransitionTraining()
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"transition": dataclasses.asdict(config), "training": dataclasses.asdict(t)}
    settings |= {"data": data_digest(dataset), "encoder": encoder.fingerprint()}
    checkpoint = out.with_name(out.stem + ".checkpoint.safetensors")
    if resume and _of_another_encoder(checkpoint, settings):  # the encoder was trained further
        checkpoint.unlink()
        if log is not None:
            log({"anew": "the encoder is another than the checkpoint's"})
    loop = Loop(
        checkpoint,
        out.with_name(out.stem + ".metrics.jsonl"),
        settings,
        Clock(steps=t.steps, minutes=minutes),
        resume,
        log,
        on_step,
    )

    tables = build_tables(
        dataset,
        encoder,
        fraction=t.valid_fraction,
        seed=t.seed,
        longest=t.longest,
        cache=cache,
        precision=t.precision,
    )
    negatives = Negatives(
        tables.train, cross=t.cross_negatives, same=t.same_negatives, siblings=t.sibling_negatives
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(t.seed)
        model = TransitionModel(config)
        model.fit_features(tables.features[np.unique(tables.train.actions)].numpy())

        def loss_of(rng: np.random.Generator) -> torch.Tensor:
            whole = rng.random() < t.full_rollout_share
            rows = rng.integers(len(tables.train.length), size=t.full_batch if whole else t.batch)
            length = tables.train.length[rows]
            start = np.zeros_like(rows) if whole else (rng.random(len(rows)) * length).astype(np.int64)
            steps = int(length.max()) if whole else t.window
            return rollout_loss(model, tables, rows, start, steps, negatives, rng, t)

        loop.run(model, t, loss_of, lambda: validate(model, tables, t))
    model.eval().save(out)
    return model


def _of_another_encoder(checkpoint: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint differs from these settings in the encoder alone."""
    theirs, ours = read_settings(checkpoint), json.loads(json.dumps(settings))
    if theirs is None:
        return False
    return {name for name in ours if theirs.get(name) != ours[name]} == {"encoder"}


def rollout_loss(
    model: TransitionModel,
    tables: Tables,
    rows: np.ndarray,
    start: np.ndarray,
    steps: int,
    negatives: Negatives,
    rng: np.random.Generator,
    t: TransitionTraining,
) -> torch.Tensor:
    """Return the loss of Eq 11 on windows of ``steps`` steps of trajectories ``rows`` from ``start``."""
    actions, states, mask, live = tables.train.windows(rows, start, steps)
    mask &= states[:, :1] >= 0  # no known start state
    other = negatives.draw(rng, tables.train.workload[rows], start[:, None] + 1 + np.arange(steps))
    z0 = tables.states[torch.from_numpy(states[:, 0])]
    true = tables.states[torch.from_numpy(states[:, 1:])]
    wrong = tables.states[torch.from_numpy(other)]
    valid = ((wrong - true[:, :, None]).square().sum(-1) > SAME_STATE_DISTANCE**2) & torch.from_numpy(
        other >= 0
    )
    predicted = model.rollout(
        z0, model.project(tables.features[torch.from_numpy(actions)]), torch.from_numpy(live)
    )
    return transition_loss(
        predicted, true, wrong, valid, torch.from_numpy(mask), weight=t.weight, margin=t.margin
    )


@torch.no_grad()
def validate(model: TransitionModel, tables: Tables, t: TransitionTraining) -> dict[str, Any]:
    """Return metrics of F on held-out workloads.

    ``cosine``: predicted and true state after 1..K steps of windows from anywhere; ``cosine_still``: the same
        for a model that changes nothing. ``terminal_cosine`` and ``terminal_still``: after whole
    trajectories from s0. ``terminal_top1``, ``terminal_mrr``: rank of the true terminal state among the
    distinct terminal states of its workload by distance from the prediction; ``terminal_chance``: top-1 of a
    guess.
    """
    held = tables.valid
    if not len(held.length):
        return {}
    model.eval()
    rng = np.random.default_rng(t.seed)
    rows = rng.permutation(len(held.length))[: t.valid_rollouts]
    start = (rng.random(len(rows)) * held.length[rows]).astype(np.int64)
    predicted, true, mask, z0 = _predict(model, tables, held, rows, start, t.window)
    count = mask.sum(0).clip(min=1)
    result: dict[str, Any] = {
        "cosine": (((predicted * true).sum(-1) * mask).sum(0) / count).tolist(),
        "cosine_still": (((z0[:, None] * true).sum(-1) * mask).sum(0) / count).tolist(),
    }
    predicted, true, mask, z0 = _predict(
        model, tables, held, rows, np.zeros_like(rows), int(held.length[rows].max())
    )
    last = held.length[rows] - 1
    at = np.arange(len(rows))
    known = mask[at, last]
    return result | _terminal(
        predicted[at, last][known], true[at, last][known], z0[known], held.workload[rows][known]
    )


def _terminal(
    predicted: np.ndarray, true: np.ndarray, z0: np.ndarray, workload: np.ndarray
) -> dict[str, Any]:
    reciprocal, chance = [], []
    for number in np.unique(workload):
        own = workload == number
        distinct = np.unique(true[own].round(4), axis=0)  # equal programs are one candidate
        if len(distinct) < 2:
            continue
        to_true = np.linalg.norm(predicted[own] - true[own], axis=-1)
        distances = np.linalg.norm(predicted[own][:, None] - distinct[None], axis=-1)
        nearer = (distances < to_true[:, None] - SAME_STATE_DISTANCE).sum(1)
        reciprocal += (1 / (1 + nearer)).tolist()
        chance += [1 / len(distinct)] * int(own.sum())
    return {
        "terminal_cosine": float((predicted * true).sum(-1).mean()),
        "terminal_still": float((z0 * true).sum(-1).mean()),
        "terminal_top1": float(np.mean(np.array(reciprocal) == 1)) if reciprocal else float("nan"),
        "terminal_mrr": float(np.mean(reciprocal)) if reciprocal else float("nan"),
        "terminal_chance": float(np.mean(chance)) if chance else float("nan"),
    }


def _predict(
    model: TransitionModel, tables: Tables, held: Rollouts, rows: np.ndarray, start: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    actions, states, mask, live = held.windows(rows, start, steps)
    z0 = tables.states[torch.from_numpy(states[:, 0])]
    true = tables.states[torch.from_numpy(states[:, 1:])]
    a = model.project(tables.features[torch.from_numpy(actions)])
    predicted = model.rollout(z0, a, torch.from_numpy(live))
    return predicted.numpy(), true.numpy(), mask & (states[:, :1] >= 0), z0.numpy()
