"""Guarded scoring for both backends: load a `WorldModel`; bisect a batch around failing candidates."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Failing candidates that bisection finds in a batch, before the rest of the batch counts as failed.
MAX_SINGLE_FAILURES = 8


def load_world_model(world_model: Any, *, online: bool) -> Any:
    """Return a model, given itself or a bundle's name or folder; if `online`, its scorers learn."""
    if isinstance(world_model, (str, os.PathLike)):
        from wmsched.model.world_model import WorldModel  # imports torch

        return WorldModel.from_pretrained(os.fspath(world_model), online=online)
    if online and not getattr(world_model, "online", True):
        world_model = copy.copy(world_model)  # leaves the caller's unchanged
        world_model.online = True
    return world_model


def score_around_failures(
    score: Callable[[list[Any]], Any], batch: Sequence[Any], failed: Callable[[Exception, bool], None]
) -> NDArray[np.float64]:
    """Return raw scores [N] of a batch; bisection finds failing candidates, which get NaN.

    Parameters
    ----------
    score : callable
        Scores [len(part)] of a part of the batch, or raises.
    batch : sequence of N candidates
    failed : callable (error, last)
        Called for each failing candidate; `last` if the rest of the batch counts as failed.
    """
    budget = MAX_SINGLE_FAILURES

    def attempt(part: list[Any]) -> Iterable[float]:
        nonlocal budget
        if budget <= 0:
            return [np.nan] * len(part)
        try:
            scores = np.asarray(score(part), dtype=np.float64)
            if scores.shape != (len(part),):
                raise ValueError(f"{len(part)} candidates were given scores of shape {scores.shape}")
            return scores
        except Exception as error:
            if len(part) == 1:
                budget -= 1
                failed(error, budget <= 0)
                return [np.nan]
            middle = len(part) // 2
            return [*attempt(part[:middle]), *attempt(part[middle:])]

    return np.asarray(attempt(list(batch)), dtype=np.float64)
