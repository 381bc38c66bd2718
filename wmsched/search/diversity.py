"""Fitness sharing: one mistake of the model cannot fill a whole round of measurements.

A frozen model that is wrong about a family of schedules ranks all of the family first, and sixteen
measurements repeat one fact. Candidates with one coarse `signature` share their score: the best few of a
round keep it, the next few get part of it, and so on. The order within a family is unchanged.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wmsched.schedules.grammar import Instruction
from wmsched.schedules.loop_nest import VECTORIZE
from wmsched.schedules.traces import PURE, is_trace
from wmsched.search.canonical import without_idle
from wmsched.search.tiles import known_lengths

if TYPE_CHECKING:
    from wmsched.search.mutations import Steps

Signature = tuple[Any, ...]


def signature(steps: Sequence[Sequence[Any]]) -> Signature:
    """Return a coarse signature of a schedule: its structure and, roughly, the shape of its tiles.

    Structure: which stages are inlined, cached or rfactored, which is computed in which, whether anything is
    vectorised. Tiles give four numbers in coarse powers of two: the volume of the innermost tile (registers),
    the number of outermost tiles (parallelism), the innermost length of the last spatial axis (the vector)
    and the volume of the innermost reduction. Loop positions, middle lengths, orders, fusions and unrolling
    do not count. Two thousand random schedules of a matrix multiplication have 260 signatures.

    Parameters
    ----------
    steps : sequence of serialized AutoScheduler steps, or of a trace's
        As in a log line, or as `schedules.traces.steps_of` makes them.

    Returns
    -------
    signature : tuple
        Hashable; equal for schedules of one family.
    """
    if is_trace(steps):
        return _trace_signature(steps)
    structure: set[tuple[Any, ...]] = set()
    splits: list[tuple[int, list[int]]] = []
    for step in without_idle(cast("Steps", steps)):
        code = step[0]
        if code == "SP":
            _, _, _, extent, lengths, _ = step
            splits.append((extent or 1, known_lengths(lengths)))
        elif code == "CA":
            _, stage, target, _ = step
            structure.add((code, stage, target))
        elif code in ("CI", "CR", "CHW", "CHR", "RF"):
            _, stage, *_ = step
            structure.add((code, stage))
        elif code == "AN":
            _, _, _, annotation = step
            if annotation == VECTORIZE:
                structure.add((code, VECTORIZE))
    if not splits:
        return (frozenset(structure),)
    return (frozenset(structure), *_tile(splits))


def _trace_signature(steps: Sequence[Sequence[Any]]) -> Signature:
    """Return the `signature` of a trace, from its rules' instructions and its sampled factors."""
    structure: set[tuple[Any, ...]] = set()
    splits: list[tuple[int, list[int]]] = []
    for row in (row for _, rows in steps for row in rows):
        kind = row[0]
        if kind == "EnterPostproc":  # later instructions implement the annotations before it
            break
        if kind == "SamplePerfectTile":
            decision = Instruction(*row).decided()
            if isinstance(decision, list) and decision:
                factors = [max(1, int(factor)) for factor in decision]
                splits.append((math.prod(factors), factors[1:] or factors))
        elif kind == "SampleComputeLocation":
            structure.add((kind, min(0, Instruction(*row).decided() or 0)))
        elif kind not in PURE and kind not in ("Split", "Annotate"):
            inputs = Instruction(*row).inputs
            structure.add((kind, *(name for name in inputs if str(name).startswith("b"))))
    return (frozenset(structure), *_tile(splits)) if splits else (frozenset(structure),)


def _tile(splits: Sequence[tuple[int, list[int]]]) -> tuple[int, int, int, int]:
    """Return the four tile numbers, from (extent, lengths inside the outermost loop) of each split."""
    # Multi-level tiling gives spatial axes the most levels; those splits make the tile.
    # Reductions are split into fewer parts. Without them a model that likes one reduction tile fills a round.
    levels = max([len(lengths) for _, lengths in splits])
    inner = outer = vector = reduced = 1
    for extent, lengths in splits:
        if not lengths:
            continue
        innermost = lengths[-1]
        if len(lengths) == levels:
            vector = innermost
            inner *= innermost
            outer *= max(1, extent // math.prod(lengths))
        else:
            reduced *= innermost
    return _rough(inner, 3), _rough(outer, 4), _rough(vector, 2), _rough(reduced, 3)


def _rough(number: int, bits: int) -> int:
    """Return log2 of `number` in steps of `bits`, rounded."""
    return round(math.log2(number) / bits) if number > 1 else 0


class Niches:
    """Candidates of one task in one round, by signature.

    Generations of a round share the count: a later copy of a full family keeps its score only if it is
    better.

    Parameters
    ----------
    strength : float
        0 leaves scores unchanged; at 1 the second `keep` candidates of a family get 1/2, the third 1/3, and
        so on.
    keep : int
        Candidates of a family that keep their full score.
    """

    def __init__(self, *, strength: float, keep: int) -> None:
        if not strength >= 0.0:
            raise ValueError(f"diversity must be 0 or above, got {strength}")
        if keep < 1:
            raise ValueError(f"the number kept per family must be 1 or above, got {keep}")
        self.strength = float(strength)
        self.keep = int(keep)
        self._seen: dict[Hashable, int] = {}  # order of arrival
        self._scores: dict[Signature, list[tuple[float, int]]] = {}

    def share(
        self, keys: Sequence[Hashable], signatures: Sequence[Signature], scores: ArrayLike
    ) -> NDArray[np.float32]:
        """Discount scores by the crowding of each candidate's family.

        Parameters
        ----------
        keys : sequence of N
            Identity of each candidate; one seen before is not counted twice.
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
                self._seen[key] = len(self._seen)
                self._scores.setdefault(family, []).append((-float(value), self._seen[key]))
                changed.add(family)
        for family in changed:
            self._scores[family].sort()  # negated: ascending here is best first
        shared = np.empty(values.size)
        for place, (key, family, value) in enumerate(zip(keys, signatures, values)):
            # Groups of `keep` that are better, or equal and earlier. Schedules with equal phi have one score
            # and
            # crowd each other too.
            crowd = bisect_left(self._scores[family], (-float(value), self._seen[key])) // self.keep
            shared[place] = value / (1.0 + self.strength * crowd)
        tiny = float(np.finfo(np.float32).tiny)
        return np.maximum(shared, tiny).astype(np.float32)

    def __len__(self) -> int:
        """Number of families."""
        return len(self._scores)
