"""Failure budget: how many candidates may fail before a task, or the whole search, stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmsched.base.errors import WmschedError

# Candidates without a success: of one task, which is then skipped; of all, which ends the search.
MAX_FAILED = 150


class TooManyFailed(WmschedError):
    """Every measurement fails, so the cause is no schedule."""


class Failures:
    """Count of failed measurements, shared by the searches of all tasks."""

    def __init__(self) -> None:
        self.count = 0  # of all tasks, before the first success
        self.row = 0  # in a row, of tasks that have run before
        self.ran = False

    def add(self, results: Sequence[Any], *, known: bool = False) -> None:
        """Count results of a task; `known` if one of its candidates has run before.

        Raises
        ------
        TooManyFailed
            Nothing has ever run (no compiler, or the wrong one), or tasks that ran before fail now (the disk
            is full, or the device is gone).
        """
        for result in results:
            failed = bool(int(result.error_no))
            self.ran = self.ran or not failed
            self.count += not self.ran
            self.row = self.row + known if failed else 0
            many = self.row if self.ran else self.count
            if many > MAX_FAILED:
                which = (
                    f"the last {many} candidates of tasks that ran before"
                    if self.ran
                    else f"all {many} candidates"
                )
                raise TooManyFailed(
                    f"{which} failed; what was measured is in the log. The last: "
                    f"{str(result.error_msg).strip()[-500:]}"
                )
