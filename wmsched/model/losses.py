"""Training objectives of E and F as pure tensor functions (Eqs 6, 9, 10 and 11 of the paper).

The functions neither sample nor hold state. The trainers make the tensors; the tests restate each formula.
"""

from __future__ import annotations

import torch
from torch import Tensor

READINGS = ("multiply", "log")


def weighted_logits(
    cosines: Tensor,
    intra: Tensor,
    *,
    intra_weight: float,
    inter_weight: float,
    temperature: float,
    reading: str,
) -> Tensor:
    """Return the negative logits of Eq 6 from the negatives' cosines.

    The paper's "the negative logits are given by the weighted cosine similarities" has two readings. Both
    are offered, with ``w`` the weight of the negative's group:

    - ``"multiply"``: ``w * cos / temperature`` (the words of the paper);
    - ``"log"``: ``cos / temperature + log w``, the usual way to count each negative ``w`` times.

    Parameters
    ----------
    cosines : [B, N] cosine of each anchor and each negative
    intra : [B, N] bool, True where the negative comes from the anchor's own file (workload)
    """
    weights = torch.where(intra, intra_weight, inter_weight).to(cosines.dtype)
    if reading == "multiply":
        return weights * cosines / temperature
    if reading == "log":
        return cosines / temperature + weights.log()
    raise ValueError(f"reading={reading!r} of Eq 6 is none of {', '.join(READINGS)}")


def representation_loss(
    positive: Tensor,
    negatives: Tensor,
    intra: Tensor,
    valid: Tensor,
    *,
    intra_weight: float = 1.0,
    inter_weight: float = 1.0,
    temperature: float = 0.1,
    reading: str = "log",
) -> Tensor:
    """Return the contrastive loss of the state encoder, ``CE(u, 0)`` (Eq 6), the mean over anchors.

    Parameters
    ----------
    positive : [B] cosine of the anchor and its second view; its logit is ``cos / temperature``
    negatives : [B, N] cosines with the negatives
    intra : [B, N] bool, see :func:`weighted_logits`
    valid : [B, N] bool, False for entries that are no negatives (the anchor's own text, padding)

    Returns
    -------
    scalar
    """
    logits = weighted_logits(
        negatives,
        intra,
        intra_weight=intra_weight,
        inter_weight=inter_weight,
        temperature=temperature,
        reading=reading,
    ).masked_fill(~valid, float("-inf"))
    u = torch.cat([positive[:, None] / temperature, logits], dim=1)
    return (torch.logsumexp(u, dim=1) - u[:, 0]).mean()


def match_loss(predicted: Tensor, true: Tensor) -> Tensor:
    """Return the squared distance of predicted and true states (Eq 9), [..., d] and [..., d] -> [...]."""
    return (predicted - true).square().sum(-1)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return the Euclidean distance along the last dimension, with a finite gradient where a equals b."""
    return ((a - b).square().sum(-1) + 1e-12).sqrt()


def hardest_negative(predicted: Tensor, negatives: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distance to the nearest valid negative, and whether there is one.

    Parameters
    ----------
    predicted : [..., d]
    negatives : [..., N, d]
    valid : [..., N] bool

    Returns
    -------
    distance [...] (0 where there is no valid negative), exists [...] bool
    """
    distances = distance(predicted[..., None, :], negatives).masked_fill(~valid, float("inf"))
    nearest = distances.amin(-1)
    exists = valid.any(-1)
    return nearest.masked_fill(~exists, 0.0), exists


def rank_loss(predicted: Tensor, true: Tensor, negatives: Tensor, valid: Tensor, *, margin: float) -> Tensor:
    """Return the margin ranking term against the hardest negative (Eq 10).

    ``max(0, d(z^, z) - d(z^, z-) + margin)`` with d the Euclidean distance and z- the valid negative nearest
    to the prediction; 0 where there is no valid negative.

    Parameters
    ----------
    predicted, true : [..., d]
    negatives : [..., N, d]
    valid : [..., N] bool, False where a "negative" is the true state itself
    margin : gamma, in units of distance (unit vectors are at most 2 apart)

    Returns
    -------
    [...]
    """
    nearest, exists = hardest_negative(predicted, negatives, valid)
    return torch.relu(distance(predicted, true) - nearest + margin) * exists


def transition_loss(
    predicted: Tensor,
    true: Tensor,
    negatives: Tensor,
    valid: Tensor,
    mask: Tensor,
    *,
    weight: float,
    margin: float,
) -> Tensor:
    """Return the rollout loss (Eq 11): the sum over valid steps, the mean over rollouts.

    ``sum_t m_t (lambda L_match(t) + (1 - lambda) L_rank(t))``

    Parameters
    ----------
    predicted, true : [B, K, d] unit vectors
    negatives : [B, K, N, d];  valid : [B, K, N] bool
    mask : [B, K] bool, m_t
    weight : lambda, between 0 (ranking only) and 1 (matching only)
    margin : gamma of :func:`rank_loss`

    Returns
    -------
    scalar
    """
    per_step = weight * match_loss(predicted, true)
    per_step = per_step + (1 - weight) * rank_loss(predicted, true, negatives, valid, margin=margin)
    return (per_step * mask).sum(-1).mean()
