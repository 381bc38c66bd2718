"""Scores of one MetaSchedule task's candidates, a batch at a time.

The C++ reader (`native.reader`) reads most candidates, and phi of all is computed together. Python reads the
others as steps. The scores are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from wmsched.base.gc import paused
from wmsched.metaschedule.native.reader import ReadTraces, TraceReader
from wmsched.search.diversity import Niches, Signature, signature
from wmsched.search.guarded_scoring import score_around_failures
from wmsched.search.history import Pair, Steps
from wmsched.search.selection import FLOOR, NEUTRAL, SelectionMap

Note = Callable[[str, Exception], None]  # called with the failed action and the error
Keys = list[bytes | None]  # one a candidate; None if it could not be read


class TaskScores:
    """State of one tuning task in a cost model.

    Parameters
    ----------
    scorer : TaskScorer or None
        None: making it failed; every candidate gets the neutral score.
    reader : TraceReader or None
        None: Python reads all candidates.
    read_steps : callable
        Returns a `tvm.s_tir.Schedule`'s steps.
    diversity : float
        Strength of `Niches`.
    keep : int
        Candidates of a family that keep their full score in a round.
    """

    def __init__(
        self,
        scorer: Any,
        *,
        reader: TraceReader | None,
        read_steps: Callable[[Any], Steps],
        diversity: float,
        keep: int,
    ) -> None:
        self.scorer = scorer
        self.reader = reader
        self._read_steps = read_steps
        self._diversity = diversity
        self._keep = keep
        self._fitted: SelectionMap | None = None
        self.end_round()

    def end_round(self) -> None:
        """Clear the scores of the round's candidates."""
        self._scores: dict[bytes, float] = {}  # raw, by a candidate's key
        self._families: dict[bytes, Signature] = {}
        self._niches = Niches(strength=self._diversity, keep=self._keep)

    def observe(self, pairs: Sequence[Pair]) -> None:
        """Learn from measurements, which changes the scale of later scores."""
        self.scorer.observe([steps for steps, _ in pairs], np.array([seconds for _, seconds in pairs]))
        self._scores.clear()
        self._families.clear()
        self._fitted = None

    def score(self, candidates: Sequence[Any], note: Note) -> NDArray[np.float64]:
        """Return scores float64 [N] in (0, 1] of candidates; failures rank last or all are equal."""
        if self.scorer is None:
            return np.full(len(candidates), NEUTRAL, dtype=np.float64)
        keys: Keys = [None] * len(candidates)
        if self.reader is not None:
            self._score_columns(self.reader, candidates, keys, note)
        if None in keys:
            with paused():
                self._score_steps(candidates, keys, note)
        return self.shared(keys)

    def shared(self, keys: Keys) -> NDArray[np.float64]:
        """Return scores like `score` for candidates by their keys; None is lowest, or all are equal."""
        raw = np.array([np.nan if key is None else self._scores[key] for key in keys])
        if not np.isfinite(raw).any():
            return np.full(len(keys), NEUTRAL, dtype=np.float64)
        if self._fitted is None:
            self._fitted = SelectionMap.fit(raw)
        scores = self._fitted(raw).astype(np.float64)
        known = [place for place, key in enumerate(keys) if key is not None]
        if self._diversity and known:
            families = [self._families[keys[place]] for place in known]  # type: ignore[index]
            scores[known] = self._niches.share([keys[place] for place in known], families, scores[known])
        # The search multiplies and sums these: they stay finite and at or above the floor.
        return np.clip(np.nan_to_num(scores, nan=FLOOR, posinf=1.0, neginf=FLOOR), FLOOR, 1.0)

    def _score_columns(self, reader: TraceReader, candidates: Sequence[Any], keys: Keys, note: Note) -> None:
        """Score the candidates that the C++ reader knows and set their keys; the others keep None."""
        try:
            read = reader(candidates)
            keys[:] = self.take(read, read.fine)
        except Exception as error:  # Python reads them instead
            self.reader = None
            note("reading traces in C++", error)

    def take(self, read: ReadTraces, wanted: NDArray[np.bool_]) -> Keys:
        """Score the `wanted` candidates that were read; return their keys, None for the others."""
        trace_keys = read.keys()
        places = np.flatnonzero(wanted & read.fine).tolist()
        fresh: dict[bytes, int] = {}
        for place in places:
            if trace_keys[place] not in self._scores:
                fresh.setdefault(trace_keys[place], place)
        if fresh:
            at = list(fresh.values())
            found = np.asarray(self.scorer.score_columns(*read.phi(at)), dtype=np.float64)
            self._scores.update(zip(fresh, found.tolist(), strict=True))
            self._families.update(zip(fresh, [(family,) for family in read.families(at)]))
        keys: Keys = [None] * len(trace_keys)
        for place in places:
            keys[place] = trace_keys[place]
        return keys

    def _score_steps(self, candidates: Sequence[Any], keys: Keys, note: Note) -> None:
        """Score the candidates without a key and set their keys; unreadable ones keep None."""
        fresh: dict[bytes, Steps] = {}
        for place, candidate in enumerate(candidates):
            if keys[place] is not None:
                continue
            steps = self.steps(candidate, note)
            if steps is not None:
                key = keys[place] = orjson.dumps(steps)
                if key not in self._scores:
                    fresh.setdefault(key, steps)
        if not fresh:
            return

        def failed(error: Exception, last: bool) -> None:
            note("scoring a candidate", error)

        found_scores = score_around_failures(self.scorer.score, list(fresh.values()), failed)
        self._scores.update(zip(fresh, found_scores.tolist()))
        if self._diversity:
            self._families.update(zip(fresh, map(signature, fresh.values())))

    def steps(self, candidate: Any, note: Note) -> Steps | None:
        """Return a candidate's steps; None if its trace cannot be read."""
        try:
            return self._read_steps(candidate.sch)
        except Exception as error:
            note("reading a trace", error)
            return None
