"""``ranker="attention"``: a small listwise network in which the candidates of a workload see each other.

A boosted tree scores each candidate alone and compares them through its loss only. Here every block mixes in
what the other candidates of the batch are like, by the cross-configuration attention of TGraph (its Eq 6):

    A_cross(e)_b = e_b * softmax_b(e_b / T)         over the candidates b, channel by channel, T learnt
    A_self(e)    = e * sigmoid(W2 relu(W1 e))       squeeze and excitation of channels (Eq 5)
    block(e)     = e + gelu(W [eta, A_cross(eta)]),  eta = A_self(norm(e))  (Eqs 3, 4; there is no graph)

The softmax is multiplied by the number of candidates, so that its values do not shrink with the batch.

A score depends on the batch, and a search compares scores of different batches. So the network always looks
at `context` candidates at a time, as in training: a larger batch is dealt into such parts several times over,
in fixed pseudo-random orders, and the scores are averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu

from wmsched.base.config import from_dict
from wmsched.model.weights import save_weights, saved_weights, take_apart, together

FORMAT_VERSION = 1
FILE = "attention.safetensors"
SPREAD = 8.0  # deviations at which an input is cut: a shape far outside the training data says no more

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class AttentionConfig:
    """The network and its batches."""

    width: int = 0  # F, columns of a row; set by the training
    hidden: int = 96  # channels
    blocks: int = 2
    squeeze: int = 8  # by how much A_self narrows
    dropout: float = 0.2
    cross: bool = True  # False leaves A_cross out: the ablation
    context: int = 40  # candidates that see each other
    passes: int = 4  # orders over which a batch larger than that is averaged
    n_models: int = 3  # networks whose scores are averaged

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> AttentionConfig:
        """Rebuild from ``dataclasses.asdict``; unknown keys are refused."""
        return from_dict(cls, values, "attention")


class Block(nn.Module):
    """One residual block on candidates [G, N, C]; `mask` [G, N] is False for padding."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        c = config.hidden
        self.norm = nn.LayerNorm(c)
        self.down, self.up = (
            nn.Linear(c, max(1, c // config.squeeze)),
            nn.Linear(max(1, c // config.squeeze), c),
        )
        self.mix = nn.Linear(2 * c if config.cross else c, c)
        self.temperature = nn.Parameter(torch.zeros(()))  # log T
        self.dropout = nn.Dropout(config.dropout)
        self.cross = config.cross

    def forward(self, e: Tensor, mask: Tensor) -> Tensor:
        eta = self.norm(e)
        eta = eta * torch.sigmoid(self.up(torch.relu(self.down(eta))))
        parts = [eta, cross_attention(eta, mask, self.temperature.exp())] if self.cross else [eta]
        return e + self.dropout(gelu(self.mix(torch.cat(parts, -1))))


def cross_attention(e: Tensor, mask: Tensor, temperature: Tensor) -> Tensor:
    """A_cross of candidates e [G, N, C] (TGraph, Eq 6), times their number; padding takes no part."""
    logits = (e / temperature).masked_fill(~mask[..., None], -torch.inf)
    count = mask.sum(1)[:, None, None].to(e.dtype)
    return e * torch.softmax(logits, dim=1) * count


class AttentionNetwork(nn.Module):
    """Rows [G, N, F] of G workloads to scores [G, N]."""

    mean: Tensor
    scale: Tensor
    within: Tensor

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.config = config
        for name in ("mean", "scale", "within"):  # of the columns, see `fit_columns`
            self.register_buffer(name, torch.ones(config.width))
        c = config.hidden
        self.enter = nn.Sequential(
            nn.Linear(2 * config.width, c), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(c, c), nn.GELU()
        )
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.blocks)])
        self.leave = nn.Linear(c, 1)

    def fit_columns(self, groups: Sequence[Floats]) -> None:
        """Set the columns' mean and deviation, and their deviation within a workload."""
        rows = np.concatenate(groups).astype(np.float64)
        inner = np.concatenate([g - _nanmean(g) for g in groups]).astype(np.float64)
        self.mean.copy_(torch.from_numpy(_nanmean(rows)))
        self.scale.copy_(torch.from_numpy(_deviation(rows)))
        self.within.copy_(torch.from_numpy(_deviation(inner)))

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Scores [G, N] of rows [G, N, F]; a column that is NaN counts as average, padding as nothing."""
        known = torch.isfinite(rows) & mask[..., None]
        x = torch.where(known, rows, torch.zeros_like(rows))
        centre = x.sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
        overall = torch.where(known, (x - self.mean) / self.scale, torch.zeros_like(x))
        relative = torch.where(known, (x - centre) / self.within, torch.zeros_like(x))
        e = self.enter(torch.cat([overall, relative], -1).clamp(-SPREAD, SPREAD))
        for block in self.blocks:
            e = block(e, mask)
        return self.leave(e)[..., 0]


class AttentionRanker:
    """Networks whose scores, each in units of its spread within a workload, are averaged; stands in for
    :class:`wmsched.model.ranker.Ranker`.
    """

    KIND = "attention"

    def __init__(
        self, config: AttentionConfig, networks: Sequence[AttentionNetwork], spreads: Sequence[float]
    ) -> None:
        self.config = config
        self.networks = [network.eval() for network in networks]
        self.spreads = [float(spread) for spread in spreads]

    @property
    def width(self) -> int:
        """F, the number of columns it was trained on."""
        return self.config.width

    def margins(self, rows: ArrayLike) -> Floats:
        """Scores float32 [N] of rows [N, F] of one workload, higher is faster.

        Raises
        ------
        ValueError
            The rows have another number of columns than the ranker was trained on.
        """
        x = np.ascontiguousarray(rows, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != self.width:
            raise ValueError(f"rows of shape {x.shape}, the ranker was trained on {self.width} columns")
        n, most = len(x), self.config.context
        if not n:
            return np.zeros(0, np.float32)
        total = np.zeros(n, np.float64)
        passes = self.config.passes if n > most else 1
        for number in range(passes):
            # fixed orders: the same batch gets the same scores
            order = np.random.default_rng(number).permutation(n) if n > most else np.arange(n)
            total[order] += self._scores(x[order])
        return (total / passes).astype(np.float32)

    @torch.no_grad()
    def _scores(self, x: Floats) -> NDArray[np.float64]:
        """Parts of nearly equal size, none above `context`, each seeing itself alone."""
        parts = -(-len(x) // self.config.context)
        places = np.array_split(np.arange(len(x)), parts)
        size = max(len(place) for place in places)
        padded = np.zeros((parts, size, x.shape[1]), np.float32)
        mask = np.zeros((parts, size), bool)
        for row, place in enumerate(places):
            padded[row, : len(place)], mask[row, : len(place)] = x[place], True
        total = np.zeros((parts, size))
        for network, spread in zip(self.networks, self.spreads):
            total += network(torch.from_numpy(padded), torch.from_numpy(mask)).numpy() / spread
        return total[mask] / len(self.networks)

    def save(self, directory: str | Path) -> None:
        """Write ``attention.safetensors``; the settings are in its metadata."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        header = {
            "format_version": FORMAT_VERSION,
            "attention": dataclasses.asdict(self.config),
            "spreads": self.spreads,
        }
        save_weights(directory / FILE, together(self.networks), header)

    @classmethod
    def load(cls, directory: str | Path) -> AttentionRanker:
        """Read what :meth:`save` wrote.

        Raises
        ------
        BundleError
            The file is missing, damaged or another release's.
        """
        with saved_weights(Path(directory) / FILE, "ranker", FORMAT_VERSION) as (header, tensors):
            config, spreads = AttentionConfig.from_json(header["attention"]), header["spreads"]
            networks = [AttentionNetwork(config) for _ in spreads]
            take_apart(tensors, networks)
        return cls(config, networks, spreads)


def _nanmean(x: NDArray[Any]) -> NDArray[np.float64]:
    known = np.isfinite(x)
    return np.where(known, x, 0.0).sum(0, dtype=np.float64) / known.sum(0).clip(min=1)


def _deviation(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each column, NaN left out; infinite where it does not vary: its weights have learnt nothing."""
    known = np.isfinite(x)
    square = np.where(known, x - _nanmean(x), 0.0) ** 2
    deviation = np.sqrt(square.sum(0) / known.sum(0).clip(min=1))
    return np.where(deviation > 1e-6, deviation, np.inf)
