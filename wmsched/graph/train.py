"""Training of an ensemble (section 2.4): folds or seeds, one after the other, each resumable after a kill.

Everything drawn in a step comes from the member's seed and the step's number, so that a run that was killed
and started again ends with the same bits as an undisturbed one (on a CPU; sums on a GPU have no fixed order).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wmsched.base.errors import DatasetError
from wmsched.graph.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from wmsched.graph.collection import data_digest, split_folds, trainable
from wmsched.graph.config import Settings, TrainingConfig
from wmsched.graph.ensemble import GraphRanker, score_graph
from wmsched.graph.metrics import kendall_tau, tile_score
from wmsched.graph.network import GraphTensors, TGraph, pairwise_hinge_loss
from wmsched.graph.prepare import PreparedGraph

Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Member:
    """What one network of an ensemble is trained and scored on.

    Attributes
    ----------
    name : "fold-0" or "seed-0", of its checkpoint
    seed : of weights, order and draws
    train, held_out : graphs
    """

    name: str
    seed: int
    train: list[PreparedGraph] = field(repr=False)
    held_out: list[PreparedGraph] = field(repr=False)


def plan_members(
    train: Sequence[PreparedGraph], valid: Sequence[PreparedGraph], training: TrainingConfig
) -> list[Member]:
    """Divide the data among the members (section 2.4.3).

    Parameters
    ----------
    train : graphs of the training split, prepared for training
    valid : graphs of the validation split. Folds merge them with the others, so they are to be prepared for
        training too; seeds hold them all out
    training : TrainingConfig

    Raises
    ------
    DatasetError
        A member would have nothing to train on, or there are fewer graphs than folds.
    """
    if training.members == "seeds":
        graphs, held_out = trainable(train), trainable(valid)
        if not graphs:
            raise DatasetError("no training graph has two configurations with different runtimes")
        return [
            Member(f"seed-{i}", training.seed + i, list(graphs), held_out) for i in range(training.trained)
        ]
    graphs = trainable([*train, *valid])
    try:
        folds = split_folds(len(graphs), training.folds, seed=training.seed)
    except ValueError as error:
        raise DatasetError(f"{error}; set training.folds, or training.members=seeds") from error
    members = []
    for number, fold in enumerate(folds[: training.trained]):
        held = set(fold.tolist())
        rest = [graph for index, graph in enumerate(graphs) if index not in held]
        members.append(
            Member(f"fold-{number}", training.seed + number, rest, [graphs[i] for i in sorted(held)])
        )
    return members


def train_ensemble(
    members: Sequence[Member],
    settings: Settings,
    *,
    folder: str | Path,
    device: str = "cpu",
    log: Log | None = None,
    on_step: Callable[[int], None] | None = None,
) -> GraphRanker:
    """Train all members and keep the best by their held-out scores; the same call again resumes.

    Parameters
    ----------
    members : of `plan_members`
    settings : Settings
    folder : of the checkpoints, one a member
    device : "cpu" or "cuda"
    log : gets a line for each held-out score
    on_step : gets the number of each finished step

    Raises
    ------
    BundleError
        A checkpoint is of other settings or data, or is damaged.
    """
    trained: list[tuple[float, str, TGraph]] = []
    for member in members:
        network, score = train_member(
            member,
            settings,
            checkpoint=Path(folder) / f"{member.name}.safetensors",
            device=device,
            log=log,
            on_step=on_step,
        )
        trained.append((score, member.name, network))
    # a member without a score (nothing held out) stays where it is, behind those that have one
    order = sorted(range(len(trained)), key=lambda i: -trained[i][0] if math.isfinite(trained[i][0]) else 2.0)
    kept = [trained[i] for i in order[: settings.training.kept]]
    scores = [score for score, _, _ in kept if math.isfinite(score)]
    record = {
        "scores": {name: score if math.isfinite(score) else None for score, name, _ in trained},
        "kept": [name for _, name, _ in kept],
        "held_out": {member.name: [graph.name for graph in member.held_out] for member in members},
        "score": float(np.mean(scores)) if scores else None,
        "score_deviation": float(np.std(scores)) if scores else None,
    }
    return GraphRanker(settings, [network for _, _, network in kept], record)


def train_member(
    member: Member,
    settings: Settings,
    *,
    checkpoint: Path,
    device: str = "cpu",
    log: Log | None = None,
    on_step: Callable[[int], None] | None = None,
) -> tuple[TGraph, float]:
    """Train one network, from its checkpoint where there is one.

    Returns
    -------
    network, score
        The network and its mean held-out tau, or of tile graphs M_tile; NaN where nothing is held out.

    Raises
    ------
    BundleError
        The checkpoint is of other settings or data, or is damaged.
    """
    t = settings.training
    steps = max(1, round(t.epochs * len(member.train)))
    torch.manual_seed(member.seed)
    network = TGraph(settings.network)
    network.fit_columns(member.train)
    network.to(device)
    optimizer = torch.optim.AdamW(_parameter_groups(network, t), lr=t.learning_rate)
    identity = {
        "settings": settings.to_json(),
        "member": member.name,
        "seed": member.seed,
        "train": data_digest(member.train),
        "held_out": data_digest(member.held_out),
    }
    state = load_checkpoint(checkpoint, identity, network=network, optimizer=optimizer) or Checkpoint()
    tensors: dict[int, GraphTensors] = {}
    # the average over orders is for the end
    one_order = replace(settings, inference=replace(settings.inference, permutations=1))
    validate_steps = max(1, round(t.validate_epochs * len(member.train)))
    while state.step < steps:
        step = state.step
        index = _graph_of_step(step, len(member.train), member.seed)
        graph = member.train[index]
        if index not in tensors:
            tensors[index] = GraphTensors.of(graph, settings.network, device)
        torch.manual_seed(member.seed * 1_000_003 + step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, t)
        network.train()
        rows = draw_configs(graph, t.max_configs, np.random.default_rng([member.seed, step]))
        configs = torch.from_numpy(graph.configs_at(rows)).to(device)
        runtimes = torch.from_numpy(graph.runtimes[rows]).to(device)
        with torch.autocast(device, torch.bfloat16) if t.precision == "bfloat16" else nullcontext():
            scores = network(tensors[index], configs)
        loss = pairwise_hinge_loss(scores.float(), runtimes, reduction=t.loss_reduction)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), t.clip)
        optimizer.step()
        state.losses.append(loss.item())
        state.step += 1

        is_last = state.step == steps
        if is_last or state.step % validate_steps == 0:
            score = held_out_score(network, member.held_out, one_order)
            line = {"member": member.name, "step": state.step, "of": steps}
            line |= {"loss": float(np.mean(state.losses)), "score": score}
            state.losses.clear()
            if math.isfinite(score) and score > state.best_score:
                state.best_score = score
                state.best = {k: v.detach().cpu().clone() for k, v in network.state_dict().items()}
            if log is not None:
                log(line)
        if is_last or state.step % t.checkpoint_steps == 0 or not state.losses:
            save_checkpoint(checkpoint, identity, state, network=network, optimizer=optimizer)
        if on_step is not None:
            on_step(state.step)
    if t.checkpoint == "best" and state.best is not None:
        network.load_state_dict(state.best)
    return network.eval(), held_out_score(network, member.held_out, settings)


def draw_configs(graph: PreparedGraph, most: int, rng: np.random.Generator) -> np.ndarray:
    """Draw configurations uniformly without replacement (section 2.2.5): int64 [min(c, most)]."""
    return rng.permutation(len(graph)) if len(graph) <= most else rng.choice(len(graph), most, replace=False)


def held_out_score(network: TGraph, graphs: Sequence[PreparedGraph], settings: Settings) -> float:
    """Return the mean tau, or M_tile of tile graphs; NaN for no graph, -1 for a diverged network.

    A layout graph has up to 100,000 configurations: ``held_out_configs`` of them are drawn, always the same.
    """
    values, most = [], settings.training.held_out_configs
    for graph in graphs:
        if most and len(graph) > most:
            rows = np.sort(np.random.default_rng(len(graph)).choice(len(graph), most, replace=False))
            graph = replace(graph, configs=graph.configs[rows], runtimes=graph.runtimes[rows])
        scores = score_graph(network, graph, settings.inference)
        if not np.isfinite(scores).all():
            return -1.0
        value = (tile_score if network.is_tile else kendall_tau)(scores, graph.runtimes)
        values.append(value if math.isfinite(value) else 0.0)  # equal scores order nothing
    return float(np.mean(values)) if values else float("nan")


def learning_rate(step: int, steps: int, training: TrainingConfig) -> float:
    """Linear warm-up over a share of the steps, then a cosine from the peak to its final share.

    The paper's "lifted cosine" is read as (1 + cos) / 2, which the code has too; another reading, one that
    does not end at 0, is ``final_share``.
    """
    warmup = training.warmup_share * steps
    if step < warmup:
        return training.learning_rate * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1.0, steps - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return training.learning_rate * (training.final_share + (1 - training.final_share) * cosine)


def _graph_of_step(step: int, graphs: int, seed: int) -> int:
    """The graph that a step is of: each epoch has all in an order of its own."""
    epoch, place = divmod(step, graphs)
    return int(np.random.default_rng([seed, epoch, 1]).permutation(graphs)[place])


def _parameter_groups(network: TGraph, training: TrainingConfig) -> list[dict[str, Any]]:
    """Parameters with and without weight decay (section 2.4.2)."""
    is_free = [
        training.decay == "non_bias" and (name.endswith("bias") or name.endswith("temperature"))
        for name, _ in network.named_parameters()
    ]
    parameters = list(network.parameters())
    return [
        {
            "params": [p for p, free in zip(parameters, is_free) if not free],
            "weight_decay": training.weight_decay,
        },
        {"params": [p for p, free in zip(parameters, is_free) if free], "weight_decay": 0.0},
    ]
