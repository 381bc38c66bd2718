"""Scores of one workload's candidates (section 3.6): roll out, rank, map to (0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wmsched.features.hardware import hardware_features
from wmsched.model.online import Residual
from wmsched.model.rows import Floats, RowBuilder, Steps
from wmsched.schedules.types import Workload


class TaskScorer:
    """Scores the candidates of one workload; made by :meth:`WorldModel.task`.

    Examples
    --------
    >>> scorer = model.task(workload, s0_text)  # doctest: +SKIP
    >>> scorer.score([steps])  # float32 [1], in (0, 1]  # doctest: +SKIP
    """

    def __init__(
        self, builder: RowBuilder, ranker: Any, workload: Workload, s0_text: str, *, online: bool = False
    ) -> None:
        self.builder, self.ranker, self.workload, self.s0_text = builder, ranker, workload, s0_text
        self._z0: Floats | None = None  # encoded at the first candidate
        self._hardware = hardware_features(workload)
        self._batch = builder.batch(workload)
        self._scale: tuple[float, float] | None = None  # centre and spread of the first batch's margins
        self._residual: Residual | None = Residual() if online else None

    @property
    def takes_columns(self) -> bool:
        """Whether `score_columns` works: the model predicts no state from the steps."""
        return self.builder.state != "predicted"

    def rows(self, list_of_steps: Sequence[Steps]) -> Floats:
        """Return the ranker's input float32 [N, F]."""
        return self.builder.rows(
            self.workload, self._initial(), self._hardware, list_of_steps, batch=self._batch
        )

    def _initial(self) -> Floats:
        if self._z0 is None:
            self._z0 = self.builder.initial(self.s0_text)
        return self._z0

    def margins(self, list_of_steps: Sequence[Steps]) -> Floats:
        """Return margins float32 [N]: finite, higher is faster, comparable within this task."""
        if not len(list_of_steps):
            return np.zeros(0, np.float32)
        return self._margins(self.rows(list_of_steps))

    def _margins(self, rows: Floats) -> Floats:
        margins = self.ranker.margins(rows)
        return margins if self._residual is None else self._residual.correct(rows, margins)

    def score_columns(self, phi: Floats, extra: Floats) -> Floats:
        """Return `score` of traces with known phi float32 [N, P] and trace columns float32 [N, E]."""
        if not len(phi):
            return np.zeros(0, np.float32)
        rows = self.builder.trace_rows(self._initial(), self._hardware, phi, extra)
        return self._squeezed(self._margins(rows))

    def judge_columns(self, phi: Floats, extra: Floats) -> tuple[Floats, Floats]:
        """Return margins and their spread over the ranker's members, for traces as in `score_columns`.

        A kind of ranker without members has a spread of 0.
        """
        rows = self.builder.trace_rows(self._initial(), self._hardware, phi, extra)
        judged = getattr(self.ranker, "judged", None)
        if judged is None:
            return self._margins(rows), np.zeros(len(rows), np.float32)
        margins, spreads = judged(rows)
        if self._residual is not None:
            margins = self._residual.correct(rows, margins)
        return margins, spreads

    def score(self, list_of_steps: Sequence[Steps]) -> Floats:
        """Return scores float32 [N], finite and in (0, 1].

        The map from margins is fitted to the first batch and then fixed, so scores of different batches
        compare. It is nearly linear over a batch's range: a search that selects by its own scale
        (`search.selection`) still finds the margins' distribution in the scores.
        """
        return self._squeezed(self.margins(list_of_steps))

    def _squeezed(self, margins: Floats) -> Floats:
        if not len(margins):
            return margins
        if self._scale is None:
            low, centre, high = np.quantile(margins, [0.25, 0.5, 0.75])
            spread = (high - low) / 1.349  # a normal's sigma; less moved by failures than the deviation
            self._scale = float(centre), float(spread) if spread > 1e-6 else 1.0
        centre, spread = self._scale
        z = (margins.astype(np.float64) - centre) / spread
        with np.errstate(over="ignore"):
            scores = 1.0 / (1.0 + np.exp(-z / 4.0))
        return np.clip(scores, 1e-6, 1.0).astype(np.float32)

    def observe(self, list_of_steps: Sequence[Steps], seconds: ArrayLike) -> None:
        """Learn from measurements if the model is online; otherwise do nothing.

        Parameters
        ----------
        seconds : [N]; NaN, zero or infinite if failed
        """
        if self._residual is None or not len(list_of_steps):
            return
        rows = self.rows(list_of_steps)
        self._residual.observe(rows, self.ranker.margins(rows), seconds)
