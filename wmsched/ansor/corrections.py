"""Corrections of an AutoScheduler run: its logs, its policies' times, and the scheduler's latencies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wmsched.measure.corrections import Corrections
from wmsched.schedules.log_file import rescale
from wmsched.schedules.types import Record
from wmsched.search.canonical import without_idle
from wmsched.search.evolution import key_of


class Ledger:
    """Measured programs of a run, by their files.

    Parameters
    ----------
    corrections : Corrections
        Of the folder of references that the runner uses.
    logs : iterable of str
        Logs that have the records.
    """

    def __init__(self, corrections: Corrections, logs: Iterable[str] = ()) -> None:
        self.corrections, self.logs = corrections, list(logs)
        self._programs: dict[str, tuple[Any, bytes, int]] = {}

    def add(self, program: str, policy: Any, key: bytes, trial: int) -> None:
        """Add a program: the key of its schedule in its policy, and the number of its trial."""
        self._programs[program] = policy, key, trial

    def correct(self) -> list[Any]:
        """Correct what is due, in the logs and in the policies; return these policies."""
        factors = self.corrections.due()
        due = [(*self._programs[name], factors[name]) for name in factors if name in self._programs]
        policies = list({id(policy): policy for policy, *_ in due}.values())
        keys: dict[tuple[str, str], dict[bytes, float]] = {}
        for policy in policies:
            own = {key: factor for one, key, _, factor in due if one is policy}
            policy.correct(own, {trial: factor for one, _, trial, factor in due if one is policy})
            keys[str(policy.task.workload_key), str(policy.task.target)] = own

        def factor_of(record: Record) -> float:
            own = keys.get((record.workload_key, record.target))
            return 1.0 if own is None else own.get(key_of(without_idle(record.steps)), 1.0)

        for log in self.logs if due else ():
            if Path(log).is_file():
                rescale(Path(log).resolve(), factor_of)
        return policies
