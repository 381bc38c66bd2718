"""Map of margins to positive selection scores.

Ansor draws parents with probability proportional to ``max(score, 0)`` and keeps the best of all generations
of a round in one heap; MetaSchedule does likewise. Margins have no zero and no unit. Unmapped, an
all-negative batch collapses the search to one parent, and a NaN poisons it. Ranks within a batch would give
the best of every generation one score, which freezes the heap at the first. The map is therefore fitted
once, to a task's first batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FLOOR = 1e-6  # lowest score; above zero, so a batch of lowest scores still has a distribution
NEUTRAL = 0.5  # score of every candidate without a model's opinion


@dataclass(frozen=True, slots=True)
class SelectionMap:
    """Monotone map of margins to (0, 1], equal for every batch.

    Let ``z = (margin - centre) / spread``. Below `headroom` the score grows as ``exp(z)``, so the share of
    parents falls e-fold with each spread. Above, it tends to 1 algebraically, so float32 still separates
    candidates far better than the fitted batch.

    Parameters
    ----------
    centre : float
        Margin of a median candidate.
    spread : float
        Margin units in one unit of z, above zero.
    headroom : float
        z at which the score is 1/2. A random candidate is near 0, the best of two thousand near 3.

    Examples
    --------
    >>> SelectionMap.fit(first_margins)(margins)  # float32 [N]  # doctest: +SKIP
    """

    centre: float = 0.0
    spread: float = 1.0
    headroom: float = 3.0

    @classmethod
    def fit(cls, margins: ArrayLike, *, headroom: float = 3.0) -> SelectionMap:
        """Fit to margins: centre is the median, spread a normal's sigma from the quartiles; NaN, inf ignored.

        Parameters
        ----------
        margins : array_like of shape [N]
            Without a finite number, the map is the default one.
        """
        values = np.asarray(margins, dtype=np.float64).ravel()
        values = values[np.isfinite(values)]
        if values.size == 0:
            return cls(headroom=headroom)
        low, centre, high = np.quantile(values, [0.25, 0.5, 0.75])
        with np.errstate(over="ignore"):  # margins near the ends of float64
            spread = (high - low) / 1.349
            if not spread > 0:  # more than half are equal
                spread = float(np.std(values))
        if not np.isfinite(spread) or spread <= 1e-12 * max(1.0, abs(centre)):
            spread = 1.0
        return cls(centre=float(centre), spread=float(spread), headroom=headroom)

    def __call__(self, margins: ArrayLike) -> NDArray[np.float32]:
        """Map margins [N] to scores float32 [N] in (0, 1]; a NaN becomes the lowest score."""
        values = np.asarray(margins, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            above = (values - self.centre) / self.spread - self.headroom
            low = 0.5 * np.exp(np.minimum(above, 0.0))
            high = 1.0 - 0.5 / (1.0 + np.maximum(above, 0.0))
        scores = np.where(above > 0.0, high, np.maximum(low, FLOOR))
        scores = np.where(np.isnan(above), FLOOR, scores)
        return scores.astype(np.float32)
