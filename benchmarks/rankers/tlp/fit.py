"""Training TLP on measured logs, its file, and its scores. No TVM."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.rankers.tlp import sequence
from benchmarks.rankers.tlp.loss import lambda_rank
from benchmarks.rankers.tlp.model import Network, Size
from benchmarks.records import Measured
from wmsched.learn.evaluate import metrics

logger = logging.getLogger("benchmarks")

BATCH = 4096  # candidates scored at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How TLP is trained; `epochs` passes over the workloads, `batch` of them a step.

    One workload in `held_out` is set aside, and the epoch that orders those best is kept.
    """

    epochs: int = 30
    batch: int = 8
    rate: float = 1e-3
    decay: float = 1e-6
    held_out: int = 10
    seed: int = 0


class Tlp:
    """A trained TLP: scores schedules of any workload by their primitives alone."""

    def __init__(self, network: Network, size: Size, names: Sequence[str]) -> None:
        self.network = network.eval()
        self.size = size
        self.names = list(names)

    def score(self, steps: Sequence[sequence.Steps]) -> NDArray[np.float64]:
        """Scores float64 [len(steps)], higher is faster; comparable within a workload only."""
        parts = [np.zeros(0)]
        with torch.inference_mode():
            for start in range(0, len(steps), BATCH):
                batch = sequence.encode(steps[start : start + BATCH], self.names)
                scores = self.network(torch.from_numpy(batch.numbers), torch.from_numpy(batch.names))
                parts.append(scores.double().numpy())
        return np.concatenate(parts)

    def observe(self, steps: Any, seconds: Any) -> None:
        """Learns nothing from a run: it is used as it was trained."""

    def save(self, path: Path) -> None:
        """One safetensors file with its sizes and vocabulary; whole or not at all."""
        partial = path.with_name(f"partial-{os.getpid()}-{path.name}")
        about = {"size": json.dumps(asdict(self.size)), "names": json.dumps(self.names)}
        save_file(self.network.state_dict(), partial, metadata=about)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Tlp:
        """The model that `save` wrote."""
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # not a mapping  # noqa: SIM118
        size = Size(**json.loads(about["size"]))
        network = Network(size)
        network.load_state_dict(tensors)
        return cls(network, size, json.loads(about["names"]))


def fit(groups: Sequence[Measured], options: Options | None = None) -> Tlp:
    """Train on the measured programs of some workloads.

    Raises
    ------
    ValueError
        No workload has two programs of which one ran.
    """
    options = options or Options()
    usable = [g for g in groups if len(g.steps) > 1 and (g.seconds > 0).any()]
    if not usable:
        raise ValueError(
            f"none of {len(groups)} workloads has two programs and a measured time: nothing to fit"
        )
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    order = rng.permutation(len(usable))
    aside = len(usable) // options.held_out
    held = [usable[i] for i in order[:aside]]
    train = [usable[i] for i in order[aside:]]
    names = sequence.vocabulary(steps for group in train for steps in group.steps)
    encoded = [sequence.encode(group.steps, names) for group in train]
    labels = [torch.from_numpy(_labels(group)) for group in train]
    size = Size(names=len(names))
    network = Network(size)
    model = Tlp(network, size, names)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.rate, weight_decay=options.decay)
    steps = options.epochs * -(-len(train) // options.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, kept = -np.inf, None
    for epoch in range(options.epochs):
        network.train()
        total = 0.0
        shuffled = rng.permutation(len(train))
        for start in range(0, len(train), options.batch):
            chosen = shuffled[start : start + options.batch]
            numbers = torch.from_numpy(np.concatenate([encoded[i].numbers for i in chosen]))
            named = torch.from_numpy(np.concatenate([encoded[i].names for i in chosen]))
            scores = network(numbers, named).split([len(labels[i]) for i in chosen])
            loss = torch.stack([lambda_rank(s, labels[i]) for s, i in zip(scores, chosen)]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        network.eval()
        pairs = [metrics.pairwise_accuracy(model.score(g.steps), g.seconds) for g in held]
        reached = float(np.nanmean(pairs)) if pairs else float(epoch)  # nothing held out: the last epoch
        logger.info(
            "tlp: epoch %d, loss %.4f, pairs of held-out %.3f", epoch + 1, total / len(train), reached
        )
        if reached >= best:
            best, kept = reached, {k: v.clone() for k, v in network.state_dict().items()}
    if kept is None:
        raise ValueError(f"{options.epochs} epochs: at least one is needed")
    network.load_state_dict(kept)
    return model


def scorer(train: list[Measured], test: list[Measured]) -> dict[str, NDArray[np.float64]]:
    """For `benchmarks.offline.offline`: trained on the one, scores of the other by workload key."""
    model = fit(train)
    return {group.key: model.score(group.steps) for group in test}


def _labels(group: Measured) -> NDArray[np.float32]:
    """best / seconds, a failed program 0."""
    seconds = group.seconds
    ran = np.isfinite(seconds) & (seconds > 0)
    return np.where(ran, seconds[ran].min() / np.where(ran, seconds, 1.0), 0.0).astype(np.float32)
