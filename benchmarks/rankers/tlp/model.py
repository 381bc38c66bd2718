"""TLP's network: embedding, self-attention over the primitives, their sum, residual blocks, one score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.rankers.tlp.sequence import WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The network's dimensions.

    Attributes
    ----------
    names : int
        Entries of the vocabulary, the unknown name not counted.
    name_width : int
        Of a name's embedding, appended to the numbers.
    hidden : int
        Width from the embedding on; a multiple of `heads`.
    heads, blocks : int
        Attention heads; residual blocks after the sum.
    """

    names: int
    name_width: int = 8
    hidden: int = 128
    heads: int = 8
    blocks: int = 2


class Network(nn.Module):
    """float [N, L, 22] and int [N, L] to scores [N]; higher is faster.

    Empty places, whose numbers are all zero, are neither attended to nor summed.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.names = nn.Embedding(size.names + 1, size.name_width)
        self.embed = nn.Sequential(
            nn.Linear(WIDTH + size.name_width, size.hidden),
            nn.ReLU(),
            nn.Linear(size.hidden, size.hidden),
            nn.ReLU(),
        )
        self.attention = nn.MultiheadAttention(size.hidden, size.heads, batch_first=True)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size.hidden, size.hidden), nn.ReLU()) for _ in range(size.blocks)
        )
        self.score = nn.Linear(size.hidden, 1)

    def forward(self, numbers: Tensor, names: Tensor) -> Tensor:
        empty = (numbers == 0).all(dim=-1)
        empty[:, 0] = False  # attention over nothing at all is not a number
        x = self.embed(torch.cat([numbers, self.names(names)], dim=-1))
        x = x + self.attention(x, x, x, key_padding_mask=empty, need_weights=False)[0]
        x = x.masked_fill(empty.unsqueeze(-1), 0.0).sum(dim=1)
        for block in self.blocks:
            x = x + block(x)
        return self.score(x).squeeze(-1)
