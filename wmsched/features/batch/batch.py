"""phi of many candidates at once: `step_features.features` as array operations.

`step_features` defines the columns; this package computes them fast enough for a search. Candidates are
grouped by their structure (`structure`), and each structure gets one `template`. All columns are then
computed for the group's numbers at once, in float64 as in `step_features`. Candidates without a template take
the one-by-one path.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features.batch.columns import columns
from wmsched.features.batch.structure import follow, outline
from wmsched.features.batch.substitute import Numbers
from wmsched.features.batch.template import Template, template
from wmsched.features.step_features import features
from wmsched.features.table import FEATURE_NAMES
from wmsched.schedules.types import Workload

MIN_CANDIDATES = 2  # of one structure before it gets a template, which takes longer than one plain candidate
MAX_STRUCTURES = 1024  # templates of one workload, some 10 kB each; then the cache is cleared
FOLLOW_ERRORS = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError)

_INDEX = {name: k for k, name in enumerate(FEATURE_NAMES)}

Floats = NDArray[np.float32]
Steps = Sequence[Sequence[Any]]


class BatchFeatures:
    """Computes phi of one workload's candidates; caches the structures it has seen.

    Parameters
    ----------
    workload : Workload
    threads : int
        As for `step_features.features`.

    Examples
    --------
    >>> phi = BatchFeatures(workload)(list_of_steps)
    """

    def __init__(self, workload: Workload, *, threads: int = 1) -> None:
        self.workload, self.threads = workload, threads
        self._cores = workload.hardware[0] if workload.hardware and workload.hardware[0] > 0 else 1
        self._met: dict[bytes, int] = {}
        self._templates: dict[bytes, Template | None] = {}

    def __call__(self, list_of_steps: Sequence[Steps]) -> Floats:
        """Return phi float32 [N, P], equal to that of `step_features.features`.

        Raises
        ------
        LookupError, ArithmeticError, ValueError, TypeError
            A candidate's steps cannot be followed.
        """
        phi = np.empty((len(list_of_steps), len(FEATURE_NAMES)), dtype=np.float32)
        plain = self._fill_grouped(list_of_steps, phi) if self.workload.stages else range(len(list_of_steps))
        if len(plain):
            phi[list(plain)] = features(
                [list_of_steps[n] for n in plain], self.workload, threads=self.threads
            )[0]
        return phi

    def _fill_grouped(self, list_of_steps: Sequence[Steps], phi: Floats) -> list[int]:
        """Fill the rows of candidates with a template; return the numbers of the others."""
        lengths: list[Any] = []
        unrolls: list[int] = []
        ends: list[tuple[int, int]] = [(0, 0)]
        members: dict[bytes, list[int]] = {}
        plain: list[int] = []
        for n, steps in enumerate(list_of_steps):
            try:
                members.setdefault(outline(steps, lengths, unrolls), []).append(n)
            except FOLLOW_ERRORS:
                plain.append(n)
            ends.append((len(lengths), len(unrolls)))
        kinds: dict[Any, list[tuple[Template, list[int]]]] = {}
        for key, places in members.items():
            found = self._template(key, list_of_steps[places[0]], len(places))
            if found is None:
                plain += places
            else:
                kinds.setdefault((id(found.source), found.reads), []).append((found, places))
        for group in kinds.values():
            places = [n for _, own in group for n in own]
            which = np.repeat(np.arange(len(group)), [len(own) for _, own in group])
            numbers = Numbers.put_in(
                [found for found, _ in group],
                which,
                [lengths[ends[n][0] : ends[n + 1][0]] for n in places],
                [unrolls[ends[n][1] : ends[n + 1][1]] for n in places],
            )
            rows = np.stack([found.row for found, _ in group])[which]
            for name, values in columns(numbers, self._cores, self.threads).items():
                rows[:, _INDEX[name]] = values
            phi[places] = rows
            plain += [places[k] for k in np.flatnonzero(~numbers.fine)]
        return plain

    def _template(self, key: bytes, steps: Steps, count: int) -> Template | None:
        if key in self._templates:
            return self._templates[key]
        if len(self._templates) >= MAX_STRUCTURES or len(self._met) >= 8 * MAX_STRUCTURES:
            self._met.clear()
            self._templates.clear()
        met = self._met[key] = self._met.get(key, 0) + count
        if met < MIN_CANDIDATES:
            return None
        found = None
        with suppress(*FOLLOW_ERRORS):  # the plain path reports the error
            followed = follow(steps, self.workload.stages)
            if followed is not None:
                found = template(steps, *followed, self.workload)
        self._templates[key] = found
        return found
