"""Online correction of a pretrained ranker: a small regression on one task's residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.model.groups import relative_speed

MIN_MEASUREMENTS = 8  # before the first fit
HALF_TRUST_MEASUREMENTS = 32  # at which the correction's weight is 1/2

Floats = NDArray[np.float32]


class Residual:
    """Observed rows of one task and the correction fitted to them.

    The target is standardized best/seconds minus standardized pretrained margins. The correction's weight is
    n / (n + 32), so a few noisy times change little.
    """

    def __init__(self) -> None:
        self.rows: list[Floats] = []
        self.margins: list[Floats] = []
        self.seconds: list[NDArray[np.float64]] = []
        self.booster: Any = None
        self.scale = 0.0

    def __len__(self) -> int:
        return sum(len(part) for part in self.seconds)

    @property
    def trust(self) -> float:
        """Weight of the correction, in [0, 1)."""
        return len(self) / (len(self) + HALF_TRUST_MEASUREMENTS)

    def observe(self, rows: Floats, margins: Floats, seconds: ArrayLike) -> None:
        """Add candidates [N, F] with pretrained margins and seconds [N]; refit if there are enough."""
        times = np.asarray(seconds, dtype=np.float64)
        if times.shape != (len(rows),):
            raise ValueError(f"{len(rows)} candidates and seconds of shape {times.shape}")
        self.rows.append(rows)
        self.margins.append(margins)
        self.seconds.append(times)
        if len(self) >= MIN_MEASUREMENTS:
            self._fit()

    def correct(self, rows: Floats, margins: Floats) -> Floats:
        """Return margins [N] plus the weighted correction."""
        if self.booster is None:
            return margins
        learnt = self.booster.inplace_predict(rows, validate_features=False)
        return (margins + self.trust * self.scale * learnt).astype(np.float32)

    def _fit(self) -> None:
        import xgboost as xgb

        truth, base = (
            relative_speed(np.concatenate(self.seconds)),
            np.concatenate(self.margins).astype(np.float64),
        )
        if np.ptp(truth) < 1e-12:  # all equal (all failed, say): there is no order to learn
            return
        spread = float(base.std())
        flat = spread < 1e-6
        target = (truth - truth.mean()) / truth.std()
        if not flat:
            target = target - (base - base.mean()) / spread
        self.scale = 1.0 if flat else spread
        parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_depth": 3,
            "eta": 0.15,
            "lambda": 2.0,
            "subsample": 0.9,
            "colsample_bytree": 0.5,
            "base_score": 0.0,
            "seed": 0,
            "nthread": 1,
            "verbosity": 0,
        }
        matrix = xgb.DMatrix(np.concatenate(self.rows), label=target)
        self.booster = xgb.train(parameters, matrix, num_boost_round=40)
