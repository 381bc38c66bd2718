"""Keeps one mistake of the model from filling a whole round of measurements.

A frozen model that is wrong about a family of schedules ranks all of that family first, and sixteen measurements then
say the same thing sixteen times. Here candidates of one coarse `signature` share: the best few of a round keep their
score, the next few get part of it, and so on (fitness sharing). The order within a family stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Signature = tuple[Any, ...]


def signature(steps: Sequence[Sequence[Any]]) -> Signature:
    """What a schedule looks like from a distance: its structure and, by powers of four, its outer and inner tiles.

    Structure is the sketch and the annotations: which stages are tiled, inlined, cached, rfactored, where each is
    computed, what is fused, vectorised, parallel. Of every explicit split the innermost length (what is vectorised or
    kept in registers) and the product of all lengths (what is left outside, hence the parallel extent) count, each
    rounded; how the lengths between are chosen does not, nor does the unrolling pragma.

    Parameters
    ----------
    steps : sequence of serialized AutoScheduler steps
        As in a log line; steps of an unknown code count by their code alone.
    """
    parts: list[Any] = []
    for step in steps:
        code = step[0]
        if code == "SP":
            lengths = [int(length or 1) for length in step[4]]
            inner, whole = (lengths[-1] if lengths else 1), 1
            for length in lengths:
                whole *= length
            parts.append(("SP", step[1], inner.bit_length() // 2, whole.bit_length() // 2))
        elif code == "CA":
            parts.append(tuple(step[:4]))
        elif code == "FU":
            parts.append(("FU", step[1], len(step[2])))
        elif code == "AN":
            parts.append(("AN", step[1], step[3]))
        elif code in ("CI", "CR", "CHW", "CHR", "RF"):
            parts.append((code, step[1]))
        elif code not in ("RE", "PR", "FSP", "FFSP"):  # these follow from the others, or make no family
            parts.append((code,))
    return tuple(parts)


class Niches:
    """The candidates of one task seen in one round, by signature.

    A generation is compared with those before it: the second generation's copy of a family that the first has
    already filled gets its full score only if it is better.

    Parameters
    ----------
    strength : float
        0 leaves scores alone; at 1 the second `keep` candidates of a family get a half, the third a third, and so on.
    keep : int
        How many of a family keep their full score.
    """

    def __init__(self, *, strength: float, keep: int) -> None:
        if not strength >= 0.0:
            raise ValueError(f"diversity must be 0 or above, got {strength}")
        if keep < 1:
            raise ValueError(f"the number kept per family must be 1 or above, got {keep}")
        self.strength = float(strength)
        self.keep = int(keep)
        self._seen: dict[Hashable, Signature] = {}
        self._scores: dict[Signature, list[float]] = {}

    def share(
        self, keys: Sequence[Hashable], signatures: Sequence[Signature], scores: ArrayLike
    ) -> NDArray[np.float32]:
        """Discount scores by the crowding of each candidate's family.

        Parameters
        ----------
        keys : sequence of N
            What tells one candidate from another; a candidate seen before takes no second place.
        signatures : sequence of N
            Each candidate's family.
        scores : array_like of shape [N]
            In (0, 1].

        Returns
        -------
        shared : float32 [N]
            In (0, 1], never above `scores`.
        """
        values = np.asarray(scores, dtype=np.float64)
        if not (len(keys) == len(signatures) == values.size):
            raise ValueError(f"{len(keys)} keys, {len(signatures)} signatures and {values.size} scores")
        if self.strength == 0.0 or values.size == 0:
            return values.astype(np.float32)
        changed = set()
        for key, family, value in zip(keys, signatures, values):
            if key not in self._seen:
                self._seen[key] = family
                self._scores.setdefault(family, []).append(-float(value))
                changed.add(family)
        for family in changed:
            self._scores[family].sort()  # negated: ascending here is best first
        shared = np.empty(values.size)
        for place, (family, value) in enumerate(zip(signatures, values)):
            crowd = bisect_left(self._scores[family], -float(value)) // self.keep  # how many better, in handfuls
            shared[place] = value / (1.0 + self.strength * crowd)
        tiny = float(np.finfo(np.float32).tiny)
        return np.maximum(shared, tiny).astype(np.float32)

    def __len__(self) -> int:
        """How many families were seen."""
        return len(self._scores)
