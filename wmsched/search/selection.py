"""From margins to the numbers that a search selects by.

Ansor draws parents with probability proportional to ``max(score, 0)`` and keeps the best of all
generations of a round in one heap; MetaSchedule does likewise. A ranker's margins have no zero and no
unit: left as they are, an all-negative batch collapses the search to one parent and a NaN poisons it.
And a map that looks only at its own batch, as ranks do, would give the best of every generation the same
score and so freeze the heap at the first one. Hence a map that is fitted once, to the first batch of a
task, and then stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FLOOR = 1e-6  # the lowest score: above zero, so that a batch of nothing else still has a distribution
NEUTRAL = 0.5  # what a candidate gets when nothing is known about any


@dataclass(frozen=True, slots=True)
class SelectionMap:
    """A monotone map of margins to (0, 1], the same for every batch that it is given.

    With ``z = (margin - centre) / spread``: below `headroom` the score grows as ``exp(z)``, so the share
    of parents falls e-fold with each spread; above, it tends to 1 algebraically, so that candidates far
    better than any in the batch it was fitted to are still told apart in float32.

    Parameters
    ----------
    centre : float
        The margin of a middling candidate.
    spread : float
        Margin units that make one unit of z, above zero.
    headroom : float
        The z at which the score is 1/2. A random candidate is near 0, the best of two thousand near 3.
    """

    centre: float = 0.0
    spread: float = 1.0
    headroom: float = 3.0

    @classmethod
    def fit(cls, margins: ArrayLike, *, headroom: float = 3.0) -> SelectionMap:
        """Centre on the median, spread by the quartiles (a normal's sigma); NaN and infinity are ignored.

        Parameters
        ----------
        margins : array_like of shape [N]
            May be empty, or hold no finite number: the map is then the standard one.
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
