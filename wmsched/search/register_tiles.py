"""Quotas of register tiles in a round of measurements, by how fast each tile was.

The register tile with its reduction length explains 0.41 of the variance of candidates' times (Zen 3, 110
searches of 64). A frozen model's favourite tile fills three fifths of a search, and in half of the searches
another tile has the fastest schedule. Measurements therefore decide each tile's quota.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from wmsched.schedules.grammar import splits
from wmsched.search.mutations import Steps
from wmsched.search.tiles import known_lengths

Tile = tuple[tuple[int, ...], int]  # length of each axis, and of the reduction within
Schedule = TypeVar("Schedule")
Key = TypeVar("Key")

CPU_SPLIT_LEVELS = 3  # inside the outermost loop, of AutoScheduler's multi-level tiling
# (maximum of a tile's best time / best time of all, share of a round)
QUOTAS = ((1.0, 5 / 8), (1.1, 1 / 4), (1.3, 1 / 8))
SLOW_QUOTA = 1 / 16  # of a slower tile, until `FIRST_ROUND_QUOTA` of it has been measured
FIRST_ROUND_QUOTA = 1 / 4  # of each tile in the first round
UNMEASURED_QUOTA = 1 / 8  # of each unmeasured tile in a later round


def register_tile(steps: Steps) -> Tile | None:
    """Return the register tile of a CPU schedule: lengths of the tile, and of the reduction within.

    The length of an axis covers its two innermost loops; between them is only part of the reduction, often of
    one iteration.

    Parameters
    ----------
    steps : serialized AutoScheduler steps

    Returns
    -------
    (tuple of int, int), or None
        None without multi-level tiling (a softmax, a pooling).
    """
    found = [(split.stage, known_lengths(split.lengths)) for split in splits(steps)]
    levels = max((len(lengths) for _, lengths in found), default=0)
    if levels < CPU_SPLIT_LEVELS:
        return None
    tiled = [(stage, lengths) for stage, lengths in found if len(lengths) == levels]
    stages = {stage for stage, _ in tiled}
    sums = [lengths[-1] for stage, lengths in found if 0 < len(lengths) < levels and stage in stages]
    return tuple(math.prod(lengths[-2:]) for _, lengths in tiled), math.prod(sums)


class TileQuota:
    """Quota of a round for each register tile, and for each tile with its reduction length.

    Parameters
    ----------
    measured : iterable of (schedule, seconds)
        Earlier measurements of the task; NaN if failed.
    count : int
        Candidates in the round.
    tile_of : callable
        Returns a schedule's register tile or None; default: of AutoScheduler's steps.

    Examples
    --------
    >>> quota = TileQuota(measured, 64)  # doctest: +SKIP
    >>> if quota.takes(steps):  # doctest: +SKIP
    ...     quota.take(steps)
    """

    def __init__(
        self,
        measured: Iterable[tuple[Any, float]],
        count: int,
        *,
        tile_of: Callable[[Any], Tile | None] = register_tile,
    ) -> None:
        self.count = count
        self._tile_of = tile_of
        self._best: dict[Hashable, float] = {}
        self._measured: Counter[Hashable] = Counter()
        for schedule, seconds in measured:
            for kind in self._kinds(schedule):
                best = self._best.get(kind, math.inf)
                self._best[kind] = best if math.isnan(seconds) else min(best, seconds)
                self._measured[kind] += 1
        self._fastest = min(self._best.values(), default=math.inf)
        self._taken: Counter[Hashable] = Counter()

    def most(self, kind: Hashable) -> int:
        """Return the quota of a tile, or of a tile with its reduction length, in candidates."""
        share = self._share(kind)
        if share == SLOW_QUOTA and self._measured[kind] >= FIRST_ROUND_QUOTA * self.count:
            return 0
        return max(1, int(share * self.count))

    def _share(self, kind: Hashable) -> float:
        if not math.isfinite(self._fastest):  # nothing has run
            return FIRST_ROUND_QUOTA
        if kind not in self._best:
            return UNMEASURED_QUOTA
        slower = self._best[kind] / self._fastest
        return next((share for least, share in QUOTAS if slower <= least), SLOW_QUOTA)

    def takes(self, schedule: Any) -> bool:
        """Return whether the quota has room for this schedule; `take` uses it."""
        return all(self._taken[kind] < self.most(kind) for kind in self._kinds(schedule))

    def take(self, schedule: Any) -> None:
        """Count a chosen schedule."""
        self._taken.update(self._kinds(schedule))

    def order(self, found: Sequence[tuple[Key, Schedule]]) -> Iterator[tuple[Key, Schedule]]:
        """Iterate over `found`, best first, with schedules over quota last, to fill up a round.

        Quotas are checked on demand, so the caller must `take` its choices. Among schedules over quota,
        larger quotas go first.
        """
        crowded = []
        for key, schedule in found:
            if self.takes(schedule):
                yield key, schedule
            else:
                crowded.append((key, schedule))
        yield from sorted(crowded, key=lambda one: -self._worth(one[1]))

    def _worth(self, schedule: Any) -> float:
        return min(map(self._share, self._kinds(schedule)), default=1.0)

    def _kinds(self, schedule: Any) -> list[Hashable]:
        """Return the keys that a schedule counts for: its tile, and its tile with reduction length."""
        tile = self._tile_of(schedule)
        return [] if tile is None else [tile[0], tile]
