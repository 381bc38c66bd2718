"""``ranker="latent"``: trees on phi beside a network that ranks by a predicted terminal state.

E, F and a value, small and asked for speed:

    z_T  = normalize(E(s_T))            E reads the statements of the terminal program
    (`benchmarks.rankers.statements`) z^_T = normalize(F(phi(a_1:T), h))  the jump from the actions to the
    state that they lead to v    = V(z^_T)

E is trained first, so that V(z_T) ranks; then F, so that z^_T is near z_T and V(z^_T) ranks. A program is
read in training only: to score, F and V are two small multilayer networks on the columns that the trees get.
The margins of both are averaged, each in units of its spread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from wmsched.base.config import from_dict
from wmsched.model.ranker import Ranker
from wmsched.model.weights import save_weights, saved_weights, take_apart, together

FORMAT_VERSION = 1
FILE = "latent.safetensors"
SPREAD = 6.0  # deviations at which a column is cut: a shape far outside the training data says no more
HEADS = 4  # weightings of a program's statements
SCALE = 4.0  # of a unit vector before a linear layer: entries near 1 rather than near 1/8

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LatentConfig:
    """The networks, and their share in the score."""

    width: int = 0  # columns of a row, phi and the hardware's; set by the training
    dim: int = 64  # d, of a state
    encoder: int = 128  # width of E
    hidden: int = 160  # width of F and V
    dropout: float = 0.15
    weight: float = 0.3  # share of the networks' margin; the trees' is the rest
    n_models: int = 1  # pairs of F and V whose margins are averaged, each with an E of its own

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1 or self.n_models < 1:
            raise ValueError("LatentConfig: weight must be between 0 and 1, n_models at least 1")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LatentConfig:
        """Rebuild from ``dataclasses.asdict``; unknown keys are refused."""
        return from_dict(cls, values, "latent")


def layers(sizes: Sequence[int], dropout: float) -> nn.Sequential:
    """Linear layers of these widths with GELU and dropout between."""
    parts: list[nn.Module] = []
    for n, (a, b) in enumerate(pairwise(sizes)):
        if n:
            parts += [nn.GELU(), nn.Dropout(dropout)]
        parts.append(nn.Linear(a, b))
    return nn.Sequential(*parts)


class StatementEncoder(nn.Module):
    """E: the statements of programs to unit vectors."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: LatentConfig, width: int) -> None:
        super().__init__()
        for name in ("mean", "scale"):
            self.register_buffer(name, torch.ones(width))
        h = config.encoder
        self.enter = nn.Sequential(
            layers([width, h, h], config.dropout), nn.GELU(), nn.Dropout(config.dropout)
        )
        self.attend = nn.Linear(h, HEADS)
        self.leave = layers([(HEADS + 2) * h, h, config.dim], config.dropout)

    def forward(self, rows: Tensor, owner: Tensor, programs: int) -> Tensor:
        """Statements [R, C], the program number [R] of each -> [programs, d]; each has one at least."""
        h = self.enter(((rows - self.mean) / self.scale).clamp(-8, 8))
        w = self.attend(h).clamp(-15, 15).exp()
        total = h.new_zeros(programs, HEADS).index_add(0, owner, w)
        weighted = (w[:, :, None] * h[:, None]).flatten(1)
        pooled = h.new_zeros(programs, weighted.shape[1]).index_add(0, owner, weighted)
        pooled = (pooled.view(programs, HEADS, -1) / total[..., None]).flatten(1)
        least = h.new_full((programs, h.shape[1]), -1e9)
        most = least.scatter_reduce(0, owner[:, None].expand_as(h), h, "amax")
        added = h.new_zeros(programs, h.shape[1]).index_add(0, owner, h) / 4
        return normalize(self.leave(torch.cat([pooled, most, added], -1)), dim=-1)


def value_head(config: LatentConfig) -> nn.Sequential:
    """V: states [..., d], times `SCALE`, to [..., 1]."""
    return layers([config.dim, config.hidden, config.hidden, 1], config.dropout)


class LatentNetwork(nn.Module):
    """F and V: rows [N, W] of phi and h to predicted terminal states [N, d] and scores [N]."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: LatentConfig) -> None:
        super().__init__()
        for name in ("mean", "scale"):
            self.register_buffer(name, torch.ones(config.width))
        self.jump = layers([2 * config.width, config.hidden, config.hidden, config.dim], config.dropout)
        self.value = value_head(config)

    def fit_columns(self, rows: Floats) -> None:
        """Set the columns' mean and deviation, missing values left out.

        A column that does not vary has an infinite one: its weights learn nothing, and are not to speak where
        it is another, as with more threads or on another target.
        """
        known = np.isfinite(rows)
        count = known.sum(0).clip(1)
        filled = np.where(known, rows, 0.0).astype(np.float64)
        mean = filled.sum(0) / count
        deviation = np.sqrt((np.where(known, filled - mean, 0.0) ** 2).sum(0) / count)
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(np.where(deviation > 1e-6, deviation.clip(0.05), np.inf)))

    def terminal(self, rows: Tensor) -> Tensor:
        """The predicted terminal states: unit vectors [..., d] of rows [..., W]."""
        x = ((rows - self.mean) / self.scale).clamp(-SPREAD, SPREAD)
        return normalize(self.jump(torch.cat([torch.nan_to_num(x), x.isnan().to(x.dtype)], -1)), dim=-1)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        z = self.terminal(rows)
        return self.value(z * SCALE)[..., 0], z


class LatentRanker:
    """Trees and latent networks whose margins are averaged, each in units of its spread.

    Parameters
    ----------
    trees : G on the same rows
    networks : F and V, one or several
    spreads : of the trees' margins and of each network's within a workload, where they saw neither it nor its
        network
    """

    KIND = "latent"

    def __init__(
        self, config: LatentConfig, trees: Ranker, networks: Sequence[LatentNetwork], spreads: Sequence[float]
    ) -> None:
        self.config, self.trees = config, trees
        self.networks = [network.eval() for network in networks]
        self.spreads = [float(spread) for spread in spreads]
        if len(self.spreads) != 1 + len(self.networks):
            raise ValueError(f"{len(self.spreads)} spreads for the trees and {len(self.networks)} networks")

    @property
    def width(self) -> int:
        """W, the number of columns it was trained on."""
        return self.config.width

    def margins(self, rows: ArrayLike) -> Floats:
        """Scores float32 [N] of rows [N, W], higher is faster; comparable within a workload only.

        Raises
        ------
        ValueError
            The rows have another number of columns than the ranker was trained on.
        """
        x = np.ascontiguousarray(rows, dtype=np.float32)
        trees = self.trees.margins(x) / self.spreads[0]
        if not len(x):
            return trees
        share = self.config.weight
        return ((1 - share) * trees + share * self.values(x)).astype(np.float32)

    @torch.no_grad()
    def values(self, rows: Floats) -> Floats:
        """The networks' part of the score: float32 [N]."""
        x = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
        parts = [network(x)[0].numpy() / spread for network, spread in zip(self.networks, self.spreads[1:])]
        return np.mean(parts, axis=0).astype(np.float32)

    def save(self, directory: str | Path) -> None:
        """Write the trees' files and ``latent.safetensors``."""
        directory = Path(directory)
        self.trees.save(directory)
        header = {"format_version": FORMAT_VERSION, "config": dataclasses.asdict(self.config)}
        header["spreads"] = self.spreads
        save_weights(directory / FILE, together(self.networks), header)

    @classmethod
    def load(cls, directory: str | Path) -> LatentRanker:
        """Read what :meth:`save` wrote.

        Raises
        ------
        BundleError
            A file is missing, damaged or of another release.
        """
        directory = Path(directory)
        with saved_weights(directory / FILE, "latent ranker", FORMAT_VERSION) as (header, tensors):
            config, spreads = LatentConfig.from_json(header["config"]), header["spreads"]
            networks = [LatentNetwork(config) for _ in range(config.n_models)]
            take_apart(tensors, networks)
        return cls(config, Ranker.load(directory), networks, spreads)
