"""F, the transition (section 3.4, Eq 8): a state's and an action's embedding give the next state's.

F is a TransH step. With a the projected features of an action,

    w(a) = W a / |W a|                      unit normal of the action's hyperplane
    d(a) = D a                              translation
    p    = z - (w . z) w + d                z projected on the hyperplane and moved
    z'   = normalize(p + MLP([p, a]))       residual multilayer transformation
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize

from wmsched.base.config import from_dict
from wmsched.model.weights import save_weights, saved_weights

FORMAT_VERSION = 1


@dataclass(frozen=True)
class TransitionConfig:
    """Widths of F."""

    features: int = 128  # h, width of the encoder's action features
    dim: int = 64  # d, width of a state embedding
    action: int = 64  # a, width of a projected action
    hidden: int = 256  # width of the residual MLP
    dropout: float = 0.0  # in the MLP, while training

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TransitionConfig:
        """Rebuild from ``dataclasses.asdict``; unknown keys are refused."""
        return from_dict(cls, values, "transition")


@dataclass(frozen=True, slots=True)
class Operators:
    """Parameters of a step that depend on the action alone, computed once for all states; [..., width]."""

    normal: Tensor  # w(a) [..., d], unit
    translation: Tensor  # d(a) [..., d]
    bias: Tensor  # the action's share of the MLP's first layer [..., hidden]

    def __getitem__(self, index: Any) -> Operators:
        return Operators(self.normal[index], self.translation[index], self.bias[index])


class TransitionModel(nn.Module):
    """The transition F.

    Attributes
    ----------
    mean, scale : [h] buffers that standardize action features, see :meth:`fit_features`

    Examples
    --------
    >>> model = TransitionModel(TransitionConfig(features=8, dim=4, action=4))
    >>> model.rollout(torch.ones(1, 4), torch.zeros(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)).shape
    torch.Size([1, 3, 4])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, config: TransitionConfig) -> None:
        super().__init__()
        self.config = c = config
        self.register_buffer("mean", torch.zeros(c.features))
        self.register_buffer("scale", torch.ones(c.features))
        self.projection = nn.Linear(c.features, c.action)
        self.normal = nn.Linear(c.action, c.dim, bias=False)
        self.translation = nn.Linear(c.action, c.dim)
        self.state_in = nn.Linear(c.dim, c.hidden, bias=False)  # with action_in: the first layer on [p, a]
        self.action_in = nn.Linear(c.action, c.hidden)
        self.out = nn.Linear(c.hidden, c.dim)
        self.dropout = nn.Dropout(c.dropout)
        nn.init.zeros_(self.out.weight)  # the residual part starts at 0: plain TransH
        nn.init.zeros_(self.out.bias)
        nn.init.normal_(self.translation.weight, std=0.02)
        nn.init.zeros_(self.translation.bias)

    def fit_features(self, features: np.ndarray) -> None:
        """Set mean and scale from the training actions' features [N, h].

        Mean-pooled features share a large common part; unstandardized actions would be nearly parallel.
        """
        self.mean.copy_(torch.from_numpy(features.mean(0)))
        self.scale.copy_(torch.from_numpy(features.std(0)).clamp(min=1e-3))

    def project(self, features: Tensor) -> Tensor:
        """Project frozen action features [..., h] to actions [..., a]."""
        return self.projection((features - self.mean) / self.scale)

    def operators(self, actions: Tensor) -> Operators:
        """Return the operators of actions [..., a], for :meth:`apply_operators`."""
        return Operators(
            normal=normalize(self.normal(actions), dim=-1),
            translation=self.translation(actions),
            bias=self.action_in(actions),
        )

    def apply_operators(self, z: Tensor, op: Operators) -> Tensor:
        """Return the states after one step from unit vectors z [..., d] under prepared actions."""
        p = z - (op.normal * z).sum(-1, keepdim=True) * op.normal + op.translation
        hidden = self.dropout(gelu(self.state_in(p) + op.bias))
        return normalize(p + self.out(hidden), dim=-1)

    def step(self, z: Tensor, a: Tensor) -> Tensor:
        """Return the next states (Eq 8): unit vectors z [B, d], projected actions a [B, a] -> [B, d]."""
        return self.apply_operators(z, self.operators(a))

    def rollout(self, z0: Tensor, actions: Tensor, mask: Tensor) -> Tensor:
        """Return the states of a rollout, each step fed with the prediction before it.

        Parameters
        ----------
        z0 : [B, d];  actions : [B, K, a] projected;  mask : [B, K] bool, False beyond a sequence's end

        Returns
        -------
        [B, K, d], the state after each step; a masked step keeps the state, so ``[:, -1]`` is the terminal
        state of every sequence
        """
        ops = self.operators(actions)
        z, states = z0, []
        for k in range(actions.shape[1]):
            z = torch.where(mask[:, k, None], self.apply_operators(z, ops[:, k]), z)
            states.append(z)
        return torch.stack(states, 1) if states else z0.new_zeros(len(z0), 0, z0.shape[-1])

    @torch.no_grad()
    def terminal(
        self, z0: np.ndarray | Tensor, table: np.ndarray | Tensor, sequences: Sequence[Any]
    ) -> np.ndarray:
        """Return the terminal states of many sequences from one state; each distinct prefix is computed once.

        Candidates of a search share most of their steps. A (parent state, action) pair that several sequences
        have at one depth is one row of the batch.

        Parameters
        ----------
        z0 : [d], the initial state
        table : [M, a], projected actions
        sequences : N integer sequences of any length, row numbers of ``table``

        Returns
        -------
        float32 [N, d]; an empty sequence gives z0
        """
        self.eval()
        start = torch.as_tensor(z0, dtype=torch.float32).reshape(1, -1)
        actions = torch.as_tensor(table, dtype=torch.float32)
        ids = [np.asarray(sequence, np.int64) for sequence in sequences]
        lengths = np.array([len(s) for s in ids], np.int64)
        flat = np.concatenate(ids) if ids else np.zeros(0, np.int64)
        if len(flat) and (flat.min() < 0 or flat.max() >= len(actions)):
            raise IndexError(
                f"action ids {flat.min()}..{flat.max()} outside the table of {len(actions)} actions"
            )
        ops = self.operators(actions)
        begin = np.cumsum(lengths) - lengths
        out = np.empty((len(ids), start.shape[1]), np.float32)
        out[lengths == 0] = start.numpy()
        alive = np.flatnonzero(lengths)
        node = np.zeros(len(alive), np.int64)  # each live sequence's row in z
        z = start
        for depth in range(int(lengths.max(initial=0))):
            pairs = node * len(actions) + flat[begin[alive] + depth]
            distinct, node = np.unique(pairs, return_inverse=True)
            parent, action = (torch.from_numpy(part) for part in np.divmod(distinct, len(actions)))
            z = self.apply_operators(z[parent], ops[action])
            done = lengths[alive] == depth + 1
            out[alive[done]] = z.numpy()[node[done]]
            alive, node = alive[~done], node[~done]
        return out

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; the config is in its metadata."""
        header = {"format_version": FORMAT_VERSION, "transition": dataclasses.asdict(self.config)}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_weights(path, self.state_dict(), header)

    @classmethod
    def load(cls, path: str | Path) -> TransitionModel:
        """Rebuild a saved model, in evaluation mode.

        Raises
        ------
        BundleError : the file is missing, damaged or of another release
        """
        with saved_weights(path, "transition", FORMAT_VERSION) as (header, tensors):
            model = cls(TransitionConfig.from_json(header["transition"]))
            model.load_state_dict(tensors)
        return model.eval()
