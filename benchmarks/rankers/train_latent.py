"""Train the latent ranker (:mod:`benchmarks.rankers.latent_ranker`): E by value, then F and V, beside the
trees.

Terminal programs are read where a record was replayed; the others teach F and V by their times alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.rankers.latent_ranker import (
    SCALE,
    LatentConfig,
    LatentNetwork,
    LatentRanker,
    StatementEncoder,
    value_head,
)
from benchmarks.rankers.statements import WIDTH
from benchmarks.rankers.terminal_programs import Programs
from benchmarks.rankers.train_attention import ranking_loss
from wmsched.base.errors import DatasetError
from wmsched.learn.evaluate.cross_validation import deal
from wmsched.learn.evaluate.quality import qualities
from wmsched.learn.training.checkpoint import learning_rate
from wmsched.learn.training.train_ranker import by_network
from wmsched.model.groups import RankGroup, informative, learnable, relative_speed, spread_of
from wmsched.model.losses import match_loss
from wmsched.model.ranker import Ranker, RankerConfig

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset

Log = Callable[[dict[str, Any]], None]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LatentTraining:
    """How it is trained."""

    seed: int = 0  # of the weights, the batches and the dropout; member k adds 1000 k
    encoder_steps: int = 350  # batches of E
    steps: int = 500  # batches of F and V
    groups: int = 16  # workloads in a batch
    candidates: int = 32  # of each
    match: float = 1.0  # weight of the squared distance of predicted and true terminal states (Eq 9)
    temperature: float = 0.1  # of the ranking loss, see `wmsched.learn.data.splits.attention.ranking_loss`
    pairwise: float = 0.7  # share of its hinge
    learning_rate: float = 1.5e-3  # peak
    warmup: int = 30  # steps
    weight_decay: float = 0.05  # AdamW
    clip: float = 1.0  # largest gradient norm


def train_network(
    groups: Sequence[RankGroup], programs: Programs, config: LatentConfig, t: LatentTraining, seed: int
) -> LatentNetwork:
    """E, then F and V. Without a replayed record, or with match=0, F and V learn by the times alone.

    Raises
    ------
    DatasetError
        No workload has two records of different speed.
    """
    usable = learnable(groups)
    states = None
    if t.match:
        found = train_states(usable, programs, config, t, seed)
        states = None if found is None else embed(found[0], programs)
    return train_jump(usable, programs, states, config, t, seed)


def train_states(
    groups: Sequence[RankGroup], programs: Programs, config: LatentConfig, t: LatentTraining, seed: int
) -> tuple[StatementEncoder, nn.Sequential] | None:
    """E and a value head, trained to rank true terminal states; None where none was replayed."""
    replayed = [_part(group, np.flatnonzero(programs.of[group.key] >= 0)) for group in groups]
    known = [(group, rows) for group, rows in replayed if informative(group)]
    if not known:
        return None
    used = np.unique(np.concatenate([programs.of[group.key][rows] for group, rows in known]))
    whole = np.concatenate([programs.rows[n] for n in used])
    batches = _Batches([group for group, _ in known], t, np.random.default_rng([seed, 0]))

    def loss() -> Tensor:
        picked, rows, target, mask = batches.draw()
        numbers = np.stack([programs.of[known[g][0].key][known[g][1]][r] for g, r in zip(picked, rows)])
        statements, owner, count, place = programs.batch(numbers)
        scores = value(encoder(statements, owner, count) * SCALE)[..., 0][place]
        return ranking_loss(scores, target, mask, temperature=t.temperature, pairwise=t.pairwise)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, value = StatementEncoder(config, WIDTH), value_head(config)
        encoder.mean.copy_(torch.from_numpy(whole.mean(0)))
        encoder.scale.copy_(torch.from_numpy(whole.std(0).clip(0.05)))
        _descend([encoder, value], loss, t.encoder_steps, t)
    return encoder, value


@torch.no_grad()
def embed(encoder: StatementEncoder, programs: Programs) -> Tensor:
    """E of all programs, [programs, d]."""
    parts = []
    for part in np.array_split(np.arange(len(programs.rows)), 1 + len(programs.rows) // 512):
        statements, owner, count, _ = programs.batch(part)
        parts.append(encoder(statements, owner, count))
    return torch.cat(parts)


def train_jump(
    groups: Sequence[RankGroup],
    programs: Programs,
    states: Tensor | None,
    config: LatentConfig,
    t: LatentTraining,
    seed: int,
) -> LatentNetwork:
    """F and V; `states` [programs, d] are what F has to reach beside ranking."""
    groups = [group for group in groups if informative(group)]
    batches = _Batches(groups, t, np.random.default_rng([seed, 1]))

    def loss() -> Tensor:
        picked, rows, target, mask = batches.draw()
        x = np.stack([groups[g].rows[r] for g, r in zip(picked, rows)])
        scores, z = network(torch.from_numpy(x))
        total = ranking_loss(scores, target, mask, temperature=t.temperature, pairwise=t.pairwise)
        if states is None:
            return total
        numbers = np.stack([programs.of[groups[g].key][r] for g, r in zip(picked, rows)])
        known = mask & torch.from_numpy(numbers >= 0)
        distance = match_loss(z, states[torch.from_numpy(numbers.clip(0))])
        return total + t.match * (distance * known).sum() / known.sum().clamp(min=1)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        network = LatentNetwork(config)
        network.fit_columns(np.concatenate([group.rows for group in groups]))
        _descend([network], loss, t.steps, t)
    return network


class _Batches:
    """Draws workloads and as many candidates of each; those of a small one repeat, masked out."""

    def __init__(self, groups: Sequence[RankGroup], t: LatentTraining, rng: np.random.Generator) -> None:
        self.speeds = [relative_speed(group.seconds).astype(np.float32) for group in groups]
        self.t, self.rng = t, rng

    def draw(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], Tensor, Tensor]:
        """Workloads [G], rows [K] of each, best/seconds [G, K] and the mask [G, K]."""
        size = min(self.t.groups, len(self.speeds))
        picked = self.rng.choice(len(self.speeds), size=size, replace=False)
        most = min(self.t.candidates, max(len(self.speeds[g]) for g in picked))
        rows, counts = [], []
        for g in picked:
            order = self.rng.permutation(len(self.speeds[g]))[:most]
            counts.append(len(order))
            rows.append(np.resize(order, most))
        target = np.stack([self.speeds[g][r] for g, r in zip(picked, rows)])
        mask = np.arange(most) < np.array(counts)[:, None]
        return picked, rows, torch.from_numpy(target), torch.from_numpy(mask)


def train_latent(
    groups: Sequence[RankGroup],
    programs: Programs,
    trees: Ranker,
    *,
    config: LatentConfig,
    training: LatentTraining,
) -> LatentRanker:
    """The networks beside trees that are there already; the spreads are of these groups."""
    config = dataclasses.replace(config, width=groups[0].rows.shape[1])
    networks = [
        train_network(groups, programs, config, training, training.seed + 1000 * member)
        for member in range(config.n_models)
    ]
    spreads = [spread_of([trees.margins(group.rows) for group in groups])]
    spreads += [spread_of([_values(network, group.rows) for group in groups]) for network in networks]
    return LatentRanker(config, trees, networks, spreads)


def train_latent_ranker(
    dataset: Dataset,
    groups: Sequence[RankGroup],
    *,
    ranker: RankerConfig | None = None,
    config: LatentConfig | None = None,
    training: LatentTraining | None = None,
    folds: int = 5,
    disturbed: bool = False,
    log: Log | None = None,
) -> tuple[LatentRanker, dict[str, float]]:
    """As :func:`wmsched.learn.training.train_ranker.train_ranker`: evaluated by folds of networks, fitted to
    everything.

    The folds also tell the spreads: trees score what they were fitted to further apart than what is new.

    Parameters
    ----------
    groups : of `wmsched.learn.training.train_ranker.build_groups`, with the same `disturbed`

    Returns
    -------
    ranker, metrics
        `metrics` is empty where there are too few networks for an evaluation, or a fold leaves nothing to
        learn from.
    """
    ranker, config = ranker or RankerConfig(), config or LatentConfig()
    training = training or LatentTraining(seed=ranker.seed)
    programs = Programs.read(dataset, [group.key for group in groups], disturbed=disturbed)
    known = [group for group in groups if np.isfinite(group.seconds).any()]
    found: dict[str, float] = {}
    spreads: list[float] | None = None
    if by_network(known):
        try:
            found, spreads = _evaluated(
                known, programs, ranker, config, training, folds=max(3, folds), log=log
            )
        except DatasetError as error:  # a fold leaves nothing to learn from; all of them together may
            if log is not None:
                log({"not_evaluated": str(error)})
    if log is not None:
        log({"ranker": found})
    trees = Ranker.fit(groups, ranker)
    result = train_latent(groups, programs, trees, config=config, training=training)
    if spreads is not None:  # the networks' own are of what they were fitted to; together they had this one
        own = [spread * spreads[1] for spread in result.spreads[1:]]
        result = LatentRanker(result.config, trees, result.networks, [spreads[0], *own])
    return result, found


def _evaluated(
    known: Sequence[RankGroup],
    programs: Programs,
    ranker: RankerConfig,
    config: LatentConfig,
    training: LatentTraining,
    *,
    folds: int,
    log: Log | None,
) -> tuple[dict[str, float], list[float]]:
    """Metrics of folds by network, and the spreads of trees and networks on what they were not fitted to.

    Raises
    ------
    DatasetError
        Without one of the folds no workload has two records of different speed.
    """
    parts = deal(known, folds=folds)
    trees_out: list[Floats] = [np.zeros(0, np.float32)] * len(known)
    values_out = list(trees_out)
    for number, held in enumerate(parts):
        train = [known[n] for part in parts if part is not held for n in part]
        fitted = train_latent(train, programs, Ranker.fit(train, ranker), config=config, training=training)
        for n in held:
            trees_out[n] = fitted.trees.margins(known[n].rows)
            values_out[n] = fitted.values(known[n].rows)
        if log is not None:
            log({"latent_fold": number + 1, "of": len(parts)})
    spreads = [spread_of(trees_out), spread_of(values_out)]
    share = config.weight
    both = [(1 - share) * a / spreads[0] + share * b / spreads[1] for a, b in zip(trees_out, values_out)]
    found: dict[str, float] = {}
    for name, scores in (("", both), ("trees_", trees_out)):
        lines = qualities(scores, [group.seconds for group in known])
        found |= {name + m: float(np.nanmean(lines[m])) for m in ("top1", "top5", "pairwise")}
    found["workloads"] = float(np.isfinite(lines["top1"]).sum())
    return found, spreads


def _values(network: LatentNetwork, rows: Floats) -> Floats:
    with torch.no_grad():
        return network(torch.from_numpy(np.ascontiguousarray(rows, np.float32)))[0].numpy()


def _part(group: RankGroup, rows: NDArray[np.intp]) -> tuple[RankGroup, NDArray[np.intp]]:
    return dataclasses.replace(group, rows=group.rows[rows], seconds=group.seconds[rows]), rows


def _descend(
    modules: Sequence[torch.nn.Module], loss_of: Callable[[], Tensor], steps: int, t: LatentTraining
) -> None:
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=t.learning_rate, weight_decay=t.weight_decay)
    for module in modules:
        module.train()
    for step in range(steps):
        for part in optimizer.param_groups:
            part["lr"] = learning_rate(step / steps, step, peak=t.learning_rate, warmup=t.warmup)
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, t.clip)
        optimizer.step()
    for module in modules:
        module.eval()
