"""What a task's own measurements say beyond the pretrained ranker: a small regression on its residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.model.groups import relative_speed

LEAST = 8  # measurements before anything is fitted
HALF_TRUST = 32  # measurements at which the correction counts half

Floats = NDArray[np.float32]


class Residual:
    """Observed rows of one task and the correction fitted to them.

    The pretrained margins and best/seconds are both standardized over what was observed; the difference is
    the target. The correction enters with trust n / (n + 32), so a handful of noisy times moves little.
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
        """The weight of the correction, in [0, 1)."""
        return len(self) / (len(self) + HALF_TRUST)

    def observe(self, rows: Floats, margins: Floats, seconds: ArrayLike) -> None:
        """Add candidates [N, F] with their pretrained margins and times; fit anew if there are enough."""
        times = np.asarray(seconds, dtype=np.float64)
        if times.shape != (len(rows),):
            raise ValueError(f"{len(rows)} candidates and seconds of shape {times.shape}")
        self.rows.append(rows)
        self.margins.append(margins)
        self.seconds.append(times)
        if len(self) >= LEAST:
            self._fit()

    def correct(self, rows: Floats, margins: Floats) -> Floats:
        """Margins [N] with what was learnt added."""
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
        if np.ptp(truth) < 1e-12:  # all alike (all failed, say): nothing to learn an order from
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
