"""Which records of a workload are replayed into states, and what came of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence

from data_builder.base.prefixes import ReplayError


def chosen(count: int, keep: int, seed: str) -> frozenset[int]:
    """Positions of the records whose states are kept: spread evenly over the log, the same on every run.

    Logs are written in the order of the search, so an even spread covers early random and late guided
    candidates.

    Parameters
    ----------
    count : int
        Number of records.
    keep : int
        How many to choose; 0 for all.
    seed : str
        Makes the choice; the workload's id.
    """
    if keep <= 0 or keep >= count:
        return frozenset(range(count))
    chance = random.Random(seed)
    return frozenset(
        chance.randrange(slot * count // keep, (slot + 1) * count // keep) for slot in range(keep)
    )


class RecordSelection:
    """Takes the chosen records' states and counts them.

    Parameters
    ----------
    count, keep, seed
        See `chosen`.
    skip : container of int
        Positions at which a worker has died or hung.
    problem : callable (place, reason) -> None
        Told of each record that stays without states.
    """

    def __init__(
        self,
        count: int,
        keep: int,
        seed: str,
        *,
        skip: Container[int],
        problem: Callable[[str, str], None],
    ) -> None:
        self._chosen = chosen(count, keep, seed)
        self._skip = skip
        self._problem = problem
        self.replayed = self.failed = 0

    def states(self, position: int, place: str, replay: Callable[[], Sequence[str]]) -> list[str]:
        """The states' hashes of the record at a position, which stands at a place; [] without."""
        if position not in self._chosen:
            return []
        reason = "a worker process died or hung while it replayed this record"
        if position not in self._skip:
            try:
                states = list(replay())
            except ReplayError as error:
                reason = str(error)
            else:
                self.replayed += 1
                return states
        self.failed += 1
        self._problem(place, f"kept without states: {reason}")
        return []
