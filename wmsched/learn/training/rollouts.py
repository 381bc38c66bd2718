"""Training data of F: trajectories as row numbers of two tables, and the draw of negatives.

States and action texts go through the frozen encoder once; training then only indexes tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from wmsched.base.errors import DatasetError
from wmsched.learn.data.embeddings import EmbeddingCache
from wmsched.learn.data.splits import split_workloads

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset
    from wmsched.model.encoder import StateEncoder


@dataclass(frozen=True)
class Rollouts:
    """Trajectories as row numbers; an unknown state is -1."""

    actions: np.ndarray  # [N, T] rows of the action table, 0 beyond the end
    states: np.ndarray  # [N, T + 1] rows of the state table, -1 beyond the end
    length: np.ndarray  # [N]
    workload: np.ndarray  # [N] number of the workload

    def windows(
        self, rows: np.ndarray, start: np.ndarray, steps: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return windows: actions [B, K], states [B, K + 1], mask of known targets, live steps (both [B,
        K])."""
        at = start[:, None] + np.arange(steps + 1)
        last = self.states.shape[1] - 1
        live = at[:, 1:] <= self.length[rows, None]
        actions = self.actions[rows[:, None], np.minimum(at[:, :-1], last - 1)]
        states = self.states[rows[:, None], np.minimum(at, last)]
        return np.where(live, actions, 0), states, live & (states[:, 1:] >= 0), live


@dataclass(frozen=True)
class Groups:
    """Distinct numbers by integer key, for draws from many keys at once."""

    begin: np.ndarray
    count: np.ndarray
    values: np.ndarray

    @classmethod
    def build(cls, keys: np.ndarray, values: np.ndarray, size: int) -> Groups:
        """Group the distinct non-negative ``values`` by key below ``size``."""
        pairs = np.unique(np.stack([keys, values], 1)[values >= 0], axis=0)
        count = np.bincount(pairs[:, 0], minlength=size)
        return cls(np.cumsum(count) - count, count, pairs[:, 1])

    def draw(self, rng: np.random.Generator, keys: np.ndarray, n: int) -> np.ndarray:
        """Draw n values for each key, with replacement: [..., n]; -1 if the key has none."""
        count = self.count[keys][..., None]
        offset = (rng.random((*keys.shape, n)) * count).astype(np.int64)
        found = self.values[np.minimum(self.begin[keys][..., None] + offset, len(self.values) - 1)]
        return np.where(count > 0, found, -1)


@dataclass(frozen=True)
class Tables:
    """Tables and rollouts that F trains on."""

    states: torch.Tensor  # [S, d] frozen embeddings
    features: torch.Tensor  # [M, h] frozen action features
    train: Rollouts
    valid: Rollouts


def build_tables(
    dataset: Dataset,
    encoder: StateEncoder,
    *,
    fraction: float,
    seed: int,
    longest: int,
    cache: str | Path | None,
    precision: str = "float32",
) -> Tables:
    """Embed states and actions, and number trajectories that have states.

    Raises
    ------
    DatasetError : no training trajectory has states
    """
    train_ids, valid_ids = split_workloads(dataset.workloads(), fraction=fraction, seed=seed)
    embedded = EmbeddingCache(encoder, cache, precision=precision)
    state_row: dict[str, int] = {}
    action_row: dict[str, int] = {}
    vectors: list[np.ndarray] = []
    parts = []
    texts = {w: dataset.states(w) for w in [*train_ids, *valid_ids]}
    embedded.add(text for states in texts.values() for text in states.values())
    for number_from, ids in ((0, train_ids), (len(train_ids), valid_ids)):
        raw: list[tuple[list[int], list[int], int]] = []
        for number, workload_id in enumerate(ids, number_from):
            for key, text in texts[workload_id].items():
                if key not in state_row:
                    state_row[key] = len(vectors)
                    vectors.append(embedded[text])
            for trajectory in dataset.trajectories(workload_id):
                if len(trajectory.states) != len(trajectory.action_texts) + 1 or not trajectory.action_texts:
                    continue
                actions = [action_row.setdefault(text, len(action_row)) for text in trajectory.action_texts]
                raw.append(
                    (
                        actions[:longest],
                        [state_row.get(key, -1) for key in trajectory.states][: longest + 1],
                        number,
                    )
                )
        parts.append(_pack(raw))
    if not len(parts[0].length):
        raise DatasetError(
            f"{dataset.root}: no trajectory has replayed states to train a transition on; "
            "build with --workloads"
        )
    features = encoder.encode_actions(list(action_row))
    return Tables(torch.from_numpy(np.stack(vectors)), torch.from_numpy(features), *parts)


def _pack(raw: Sequence[tuple[list[int], list[int], int]]) -> Rollouts:
    longest = max((len(actions) for actions, _, _ in raw), default=1)
    actions = np.zeros((len(raw), longest), np.int64)
    states = np.full((len(raw), longest + 1), -1, np.int64)
    for row, (a, s, _) in enumerate(raw):
        actions[row, : len(a)] = a
        states[row, : len(s)] = s
    lengths = np.array([len(a) for a, _, _ in raw], np.int64)
    return Rollouts(actions, states, lengths, np.array([number for *_, number in raw], np.int64))


class Negatives:
    """Draws each step's negatives: any trajectory's, the same workload's, and siblings at the same depth."""

    def __init__(self, rollouts: Rollouts, *, cross: int, same: int, siblings: int) -> None:
        self.numbers = (cross, same, siblings)
        self.depths = rollouts.states.shape[1]
        workload = np.repeat(rollouts.workload, self.depths)
        depth = np.tile(np.arange(self.depths), len(rollouts.length))
        flat = rollouts.states.ravel()
        size = int(rollouts.workload.max()) + 1
        self.anywhere = np.unique(flat[flat >= 0])
        self.same = Groups.build(workload, flat, size)
        self.siblings = Groups.build(workload * self.depths + depth, flat, size * self.depths)

    def draw(self, rng: np.random.Generator, workload: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Draw state numbers [B, K, n] (-1: none) for rollouts of workloads [B] at depths [B, K]."""
        cross, same, siblings = self.numbers
        keys = np.broadcast_to(workload[:, None], depth.shape)
        depth = np.minimum(depth, self.depths - 1)
        drawn = [
            rng.choice(self.anywhere, size=(*depth.shape, cross)),
            self.same.draw(rng, keys, same),
            self.siblings.draw(rng, keys * self.depths + depth, siblings),
        ]
        return np.concatenate(drawn, -1)
