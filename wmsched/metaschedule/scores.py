"""Scores of one MetaSchedule task's candidates, a batch at a time.

Most candidates are read in C++ (`native_traces`), and phi of all of them is computed together; what that does
not know, and all where it cannot be used, is read in Python, as steps. The scores are the same.
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

Note = Callable[[str, Exception], None]  # told what was being done, and why it failed
Keys = list[bytes | None]  # of each candidate; None where it could not be read


class TaskScores:
    """What a cost model keeps about one tuning task.

    Parameters
    ----------
    scorer : TaskScorer or None
        None: it could not be made, and every candidate is scored neutral.
    reader : TraceReader or None
        None: all candidates are read in Python.
    read_steps : callable
        A `tvm.s_tir.Schedule`'s steps, in Python.
    diversity : float
        `Niches`' strength.
    keep : int
        How many of a family keep their full score in a round.
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
        """Forget the round's candidates."""
        self._scores: dict[bytes, float] = {}  # raw, by what was read of a candidate
        self._families: dict[bytes, Signature] = {}
        self._niches = Niches(strength=self._diversity, keep=self._keep)

    def observe(self, pairs: Sequence[Pair]) -> None:
        """Learn from measurements: what is scored from now on has another scale."""
        self.scorer.observe([steps for steps, _ in pairs], np.array([seconds for _, seconds in pairs]))
        self._scores.clear()
        self._families.clear()
        self._fitted = None

    def score(self, candidates: Sequence[Any], note: Note) -> NDArray[np.float64]:
        """Scores float64 [N] in (0, 1] of N `MeasureCandidate`; without one: lowest, or all alike."""
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
        """Scores as `score` gives them, of candidates by their keys; without one: lowest, or all alike."""
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
        # The search multiplies and sums these: nothing below the floor, nothing that is no number.
        return np.clip(np.nan_to_num(scores, nan=FLOOR, posinf=1.0, neginf=FLOOR), FLOOR, 1.0)

    def _score_columns(self, reader: TraceReader, candidates: Sequence[Any], keys: Keys, note: Note) -> None:
        """Score, and give keys to, the candidates that the C++ reader knows; the others keep None."""
        try:
            read = reader(candidates)
            keys[:] = self.take(read, read.fine)
        except Exception as error:  # Python reads them, and says what it is if that fails too
            self.reader = None
            note("reading traces in C++", error)

    def take(self, read: ReadTraces, wanted: NDArray[np.bool_]) -> Keys:
        """Score what was read, where it is wanted; keys of these, None for the others."""
        told = read.keys()
        places = np.flatnonzero(wanted & read.fine).tolist()
        fresh: dict[bytes, int] = {}
        for place in places:
            if told[place] not in self._scores:
                fresh.setdefault(told[place], place)
        if fresh:
            at = list(fresh.values())
            found = np.asarray(self.scorer.score_columns(*read.phi(at)), dtype=np.float64)
            self._scores.update(zip(fresh, found.tolist(), strict=True))
            self._families.update(zip(fresh, [(family,) for family in read.families(at)]))
        keys: Keys = [None] * len(told)
        for place in places:
            keys[place] = told[place]
        return keys

    def _score_steps(self, candidates: Sequence[Any], keys: Keys, note: Note) -> None:
        """Score, and give keys to, the candidates without one; those that cannot be read keep None."""
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
        """A candidate's steps; None where its trace cannot be read."""
        try:
            return self._read_steps(candidate.sch)
        except Exception as error:
            note("reading a trace", error)
            return None
