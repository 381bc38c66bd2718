"""LambdaRank as a tensor function: pairwise logistic losses weighted by what a swap changes in the NDCG."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def lambda_rank(scores: Tensor, labels: Tensor, *, sigma: float = 1.0) -> Tensor:
    """The loss of one workload's programs (Burges et al., 2006; the LambdaLoss form).

    sum over pairs with y_i > y_j of log2(1 + exp(-sigma (s_i - s_j))) |G_i - G_j| |1/D_i - 1/D_j|, where
    G = (2^y - 1) / ideal DCG and D = log2(1 + rank by score).

    Parameters
    ----------
    scores : Tensor [N]
    labels : Tensor [N]
        best seconds / seconds, in [0, 1]; a failed program 0.
    sigma : float

    Returns
    -------
    Tensor []
        0 if no two labels differ.
    """
    count = scores.shape[0]
    gains = torch.pow(2.0, labels) - 1.0
    discounts = torch.log2(torch.arange(count, device=scores.device, dtype=scores.dtype) + 2.0)
    ideal = (gains.sort(descending=True).values / discounts).sum()
    if ideal <= 0:
        return scores.sum() * 0.0
    with torch.no_grad():
        ranks = torch.empty(count, dtype=torch.long, device=scores.device)
        ranks[scores.argsort(descending=True)] = torch.arange(count, device=scores.device)
        inverse = 1.0 / discounts[ranks]
        weight = (gains.unsqueeze(1) - gains).abs() / ideal * (inverse.unsqueeze(1) - inverse).abs()
        better = labels.unsqueeze(1) > labels
    margins = scores.unsqueeze(1) - scores
    losses = functional.softplus(-sigma * margins) / 0.6931471805599453
    return (losses * weight)[better].sum()
