"""Train the listwise network of :mod:`benchmarks.rankers.attention_ranker` on the groups that G is trained
on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.rankers.attention_ranker import AttentionConfig, AttentionNetwork, AttentionRanker
from wmsched.base.errors import DatasetError
from wmsched.learn.evaluate.cross_validation import out_of_fold
from wmsched.learn.evaluate.quality import qualities
from wmsched.learn.training.checkpoint import learning_rate
from wmsched.learn.training.train_ranker import by_network
from wmsched.model.groups import RankGroup, learnable, relative_speed, spread_of


@dataclass(frozen=True)
class AttentionTraining:
    """How it is trained."""

    seed: int = 0  # of the weights, the batches and the dropout; member k adds 1000 k
    steps: int = 600  # batches
    groups: int = 16  # workloads in a batch
    keep: float = 0.8  # share of a workload's candidates that a batch sees, another one each time
    temperature: float = 0.1  # of the target, a softmax of best/seconds: what one place's speed is worth
    pairwise: float = 0.5  # share of the pairwise hinge of TGraph's Eq 8 in the loss; the rest is listwise
    learning_rate: float = 1e-3  # peak
    warmup: int = 30  # steps
    weight_decay: float = 0.05  # AdamW
    clip: float = 1.0  # largest gradient norm


def train_attention(
    groups: Sequence[RankGroup],
    *,
    config: AttentionConfig | None = None,
    training: AttentionTraining | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> AttentionRanker:
    """Fit the network to groups of measured candidates.

    Parameters
    ----------
    config : its `width` is taken from the groups
    log : receives each member's number and the mean loss of its last tenth

    Raises
    ------
    DatasetError
        No group has two candidates of different speed.
    """
    t = training or AttentionTraining()
    groups = learnable(groups)
    config = dataclasses.replace(config or AttentionConfig(), width=groups[0].rows.shape[1])
    networks, spreads = [], []
    for member in range(config.n_models):
        network, loss = _train_member(groups, config, t, t.seed + 1000 * member)
        one = AttentionRanker(config, [network], [1.0])
        networks.append(network)
        spreads.append(spread_of([one.margins(group.rows) for group in groups]))
        if log is not None:
            log({"attention": member + 1, "of": config.n_models, "loss": loss})
    return AttentionRanker(config, networks, spreads)


def _train_member(
    groups: Sequence[RankGroup], config: AttentionConfig, t: AttentionTraining, seed: int
) -> tuple[AttentionNetwork, float]:
    rng = np.random.default_rng(seed)
    losses: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AttentionNetwork(config)
        network.fit_columns([group.rows for group in groups])
        optimizer = torch.optim.AdamW(network.parameters(), lr=t.learning_rate, weight_decay=t.weight_decay)
        network.train()
        for step in range(t.steps):
            for part in optimizer.param_groups:
                part["lr"] = learning_rate(step / t.steps, step, peak=t.learning_rate, warmup=t.warmup)
            rows, target, mask = _batch(groups, rng, t, config.context)
            loss = ranking_loss(
                network(rows, mask), target, mask, temperature=t.temperature, pairwise=t.pairwise
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), t.clip)
            optimizer.step()
            losses.append(loss.item())
    return network.eval(), float(np.mean(losses[-max(1, t.steps // 10) :]))


def ranking_loss(
    scores: Tensor, target: Tensor, mask: Tensor, *, temperature: float, pairwise: float
) -> Tensor:
    """Listwise and pairwise loss of scores [G, N] against best/seconds [G, N], padding masked out [G, N].

    The listwise part is the cross-entropy between the softmax of the scores and that of target/temperature;
    the pairwise one a hinge of margin 1 on each pair (TGraph, Eq 8), weighted by the pair's difference: equal
    speeds ask for no order.
    """
    listwise = scores.new_zeros(())
    if pairwise < 1:
        aim = torch.softmax((target / temperature).masked_fill(~mask, -torch.inf), dim=1)
        log_p = torch.log_softmax(scores.masked_fill(~mask, -torch.inf), dim=1)
        listwise = -(aim * log_p.masked_fill(~mask, 0.0)).sum(1).mean()
    hinge = scores.new_zeros(())
    if pairwise > 0:
        gap = (target[:, :, None] - target[:, None, :]).clamp(min=0)
        weight = gap * (mask[:, :, None] & mask[:, None, :])
        slack = torch.relu(1 - (scores[:, :, None] - scores[:, None, :]))
        hinge = ((weight * slack).sum((1, 2)) / weight.sum((1, 2)).clamp(min=1e-6)).mean()
    return (1 - pairwise) * listwise + pairwise * hinge


def _batch(
    groups: Sequence[RankGroup], rng: np.random.Generator, t: AttentionTraining, context: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows [G, N, F], best/seconds [G, N] and the mask [G, N] of some workloads' candidates."""
    picked = rng.choice(len(groups), size=min(t.groups, len(groups)), replace=False)
    parts = []
    for number in picked:
        group = groups[number]
        most = min(max(2, round(t.keep * len(group.rows))), context)
        own = rng.permutation(len(group.rows))[:most]
        parts.append((group.rows[own], relative_speed(group.seconds)[own]))
    size = max(len(target) for _, target in parts)
    rows = np.zeros((len(parts), size, parts[0][0].shape[1]), np.float32)
    target, mask = np.zeros((len(parts), size), np.float32), np.zeros((len(parts), size), bool)
    for place, (x, y) in enumerate(parts):
        rows[place, : len(y)], target[place, : len(y)], mask[place, : len(y)] = x, y, True
    return torch.from_numpy(rows), torch.from_numpy(target), torch.from_numpy(mask)


def attentive(
    config: AttentionConfig | None = None, training: AttentionTraining | None = None
) -> Callable[[Sequence[RankGroup], Sequence[RankGroup]], AttentionRanker]:
    """A fit for :func:`wmsched.learn.evaluate.cross_validation.out_of_fold`; its steps are fixed, so both
    parts train it."""
    return lambda train, stop: train_attention([*train, *stop], config=config, training=training)


def train_attention_ranker(
    groups: Sequence[RankGroup],
    *,
    seed: int = 0,
    folds: int = 5,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[AttentionRanker, dict[str, float]]:
    """As :func:`wmsched.learn.training.train_ranker.train_ranker`: evaluated by folds of networks, fitted to
    everything.

    Returns
    -------
    ranker, metrics
        `metrics` is empty where there are too few networks for an evaluation, or a fold leaves nothing to
        learn from.
    """
    training = AttentionTraining(seed=seed)
    known = [group for group in groups if np.isfinite(group.seconds).any()]
    found: dict[str, float] = {}
    if by_network(known):
        try:
            scores = out_of_fold(known, attentive(training=training), folds=max(3, folds))
            lines = qualities(scores, [group.seconds for group in known])
            found = {name: float(np.nanmean(lines[name])) for name in ("top1", "top5", "pairwise")}
            found["workloads"] = float(np.isfinite(lines["top1"]).sum())
        except DatasetError as error:  # a fold leaves nothing to learn from; all of them together may
            if log is not None:
                log({"not_evaluated": str(error)})
    if log is not None:
        log({"ranker": found})
    return train_attention(groups, training=training, log=log), found
