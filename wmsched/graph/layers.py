"""TGraph's layers (section 2.3) on node states [B, n, C] of B configurations of one graph.

    S(e)_i     = l2(f_2(concat(e_i, sum_{j in neighbours(i)} f_1(e_j))))           Eq 2
    A_self(e)  = e * sigmoid(W_2 relu(W_1 e))                                      Eq 5
    A_cross(e) = e_ib * softmax_b(e_ib / T)            over the configurations b   Eq 6
    eta        = A_self(S(norm(e)))                                                Eq 4
    block(e)   = e + gelu(concat(eta, A_cross(eta)))                               Eq 3

norm is `normalize_nodes`. Where the published code has other equations, `NetworkConfig` names them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize

from wmsched.graph.config import NetworkConfig

NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Messages:
    """Who sends to whom: node ``source[i]`` [m] to node ``target[i]`` [m]; ``count`` [n] received by each."""

    source: Tensor
    target: Tensor
    count: Tensor


def message_edges(edges: Tensor, nodes: int, direction: str) -> Messages:
    """Return the messages along edges [m, 2] of (consumer, producer).

    Parameters
    ----------
    edges : int64 [m, 2]
    nodes : n
    direction : "both": a set of neighbours, each counted once; "to_producers": what the published code does,
    with
        the list as it is; "to_consumers"; "none"
    """
    consumer, producer = edges[:, 0], edges[:, 1]
    if direction == "both":
        pairs = torch.cat([edges, edges.flip(1)])
        source, target = torch.unique(pairs, dim=0).unbind(1)
    elif direction == "to_producers":
        source, target = consumer, producer
    elif direction == "to_consumers":
        source, target = producer, consumer
    else:
        source = target = consumer[:0]
    count = torch.bincount(target, minlength=nodes)
    return Messages(source, target, count)


def normalize_nodes(e: Tensor) -> Tensor:
    """Instance norm: each channel of each configuration to mean 0, variance 1 over the nodes; no weights.

    One node has no variance over nodes, and would lose everything: it stays as it is.
    """
    if e.shape[1] < 2:
        return e
    if e.dtype == torch.bfloat16:  # by autocast, which keeps PyTorch's own norms in float32 too
        e = e.float()
    variance, mean = torch.var_mean(e, dim=1, keepdim=True, correction=0)
    return (e - mean) * torch.rsqrt(variance + NORM_EPS)


class ChannelAttention(nn.Module):
    """A_self (Eq 5): squeeze and excitation of channels [..., C], narrowed `squeeze` times."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        narrow = max(1, channels // squeeze)
        self.down, self.up = nn.Linear(channels, narrow), nn.Linear(narrow, channels)

    def forward(self, e: Tensor) -> Tensor:
        return e * torch.sigmoid(self.up(torch.relu(self.down(e))))


class CrossAttention(nn.Module):
    """A_cross (Eq 6), beside what it was computed from: [B, n, C] to [B, n, 2 C].

    T is one number a layer, unconstrained as published. With one configuration the softmax is 1.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(float(temperature)))

    def forward(self, eta: Tensor) -> Tensor:
        return torch.cat([eta, eta * torch.softmax(eta / self.temperature, dim=0)], dim=-1)


class SageConvolution(nn.Module):
    """S (Eq 2): a node's own state and its neighbours', [B, n, C_in] to [B, n, C_out].

    f_2 on a concatenation is one linear layer on each part. f_1 has a ReLU: without one it would be a part of
    f_2.
    """

    def __init__(self, inputs: int, outputs: int, config: NetworkConfig) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs, bias=False)
        self.neighbours = nn.Linear(inputs, outputs)
        self.project = nn.Linear(inputs, inputs) if config.project else None
        self.is_mean, self.l2_norm = config.aggregate == "mean", config.l2_norm

    def forward(self, e: Tensor, messages: Messages) -> Tensor:
        sent = e if self.project is None else torch.relu(self.project(e))
        total = torch.zeros_like(sent).index_add_(1, messages.target, sent[:, messages.source])
        if self.is_mean:
            total = total / messages.count.clamp(min=1)[:, None].to(total.dtype)
        out = self.own(e) + self.neighbours(total)
        return normalize(out, dim=-1) if self.l2_norm else out


def half_width(config: NetworkConfig) -> int:
    """Channels before cross attention, which fills the other half of the width."""
    return config.width // 2 if config.cross_attention else config.width


def attentions(config: NetworkConfig) -> nn.Sequential:
    """Return A_self and A_cross as far as they are on: [B, n, `half_width`] to [B, n, width]."""
    layers: list[nn.Module] = []
    if config.channel_attention:
        layers.append(ChannelAttention(half_width(config), config.squeeze))
    if config.cross_attention:
        layers.append(CrossAttention(config.temperature))
    return nn.Sequential(*layers)


class GraphBlock(nn.Module):
    """One graph convolutional block (Eqs 3, 4) of width C on [B, n, C]."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.convolution = SageConvolution(config.width, half_width(config), config)
        self.attentions = attentions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.is_gelu_last = config.activation == "after_sum"

    def forward(self, e: Tensor, messages: Messages) -> Tensor:
        eta = self.attentions(self.convolution(normalize_nodes(e), messages))
        return self.dropout(gelu(e + eta) if self.is_gelu_last else e + gelu(eta))


class InputLayer(nn.Module):
    """What follows a linear layer of f_in (Eq 7): GELU; in the published code, after norm and attentions."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.attentions = attentions(config) if config.input_mlp == "attended" else None

    def forward(self, e: Tensor) -> Tensor:
        return gelu(e if self.attentions is None else self.attentions(normalize_nodes(e)))
