"""Shares a round of measurements among register tiles, by how fast each was.

The tile that stays in registers, and how often a sum is carried on in it, explain 0.41 of how the times of
one search's candidates differ (Zen 3, 110 searches of 64). A frozen model that likes one tile best fills
three fifths of a search with it, and in half of the searches another one's schedule is the fastest: what is
measured has to say which tile is worth more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from wmsched.search.mutations import Steps
from wmsched.search.tiles import lengths_of

Tile = tuple[tuple[int, ...], int]  # lengths of the tile, one of each axis, and of the sum within
Schedule = TypeVar("Schedule")
Key = TypeVar("Key")

LEVELS = 3  # of the splits that AutoScheduler tiles a processor's stage with, inside the outermost loop
# A tile's best time over the best of all, and the share of a round that it may have.
SHARES = ((1.0, 5 / 8), (1.1, 1 / 4), (1.3, 1 / 8))
SLOW = 1 / 16  # of one that is slower, until as many of it as `FIRST` allows have been measured
FIRST = 1 / 4  # of a first round for each tile
NEW = 1 / 8  # of a later one for each that was never measured


def register_tile(steps: Steps) -> Tile | None:
    """What a schedule of a processor keeps in registers: lengths of the tile, and of the sum within.

    The length of an axis is that of its two innermost loops: between them is only a part of the sum, often of
    one iteration.

    Parameters
    ----------
    steps : serialized AutoScheduler steps

    Returns
    -------
    (tuple of int, int), or None
        None where nothing is tiled in several levels (a softmax, a pooling).
    """
    splits = [(step[1], lengths_of(step)) for step in steps if step[0] == "SP"]
    levels = max((len(lengths) for _, lengths in splits), default=0)
    if levels < LEVELS:
        return None
    tiled = [(stage, lengths) for stage, lengths in splits if len(lengths) == levels]
    stages = {stage for stage, _ in tiled}
    sums = [lengths[-1] for stage, lengths in splits if 0 < len(lengths) < levels and stage in stages]
    return tuple(math.prod(lengths[-2:]) for _, lengths in tiled), math.prod(sums)


class TileQuota:
    """How many candidates of each tile a round may have, and of each tile with its sum.

    Parameters
    ----------
    measured : iterable of (schedule, seconds)
        Of the same task; NaN where it failed.
    count : int
        Candidates of the round.
    tile_of : callable
        A schedule's register tile, None where it has none; by default of AutoScheduler's steps.
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
        """How many of a tile, or of one with its sum, the round may have."""
        share = self._share(kind)
        if share == SLOW and self._measured[kind] >= FIRST * self.count:
            return 0
        return max(1, int(share * self.count))

    def _share(self, kind: Hashable) -> float:
        if not math.isfinite(self._fastest):  # nothing has run
            return FIRST
        if kind not in self._best:
            return NEW
        slower = self._best[kind] / self._fastest
        return next((share for least, share in SHARES if slower <= least), SLOW)

    def takes(self, schedule: Any) -> bool:
        """Whether there is room for one more such schedule; `take` fills it."""
        return all(self._taken[kind] < self.most(kind) for kind in self._kinds(schedule))

    def take(self, schedule: Any) -> None:
        """Count a schedule that was chosen."""
        self._taken.update(self._kinds(schedule))

    def order(self, found: Sequence[tuple[Key, Schedule]]) -> Iterator[tuple[Key, Schedule]]:
        """`found`, the best first, but what has no room in the end, for a round that is not full.

        What has no room is seen when it is asked for: the caller takes what it chooses (`take`). Of that,
        what is of a tile with a larger share goes first.
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
        """What a schedule is counted as: its tile, and that with its sum."""
        tile = self._tile_of(schedule)
        return [] if tile is None else [tile[0], tile]
