"""How many candidates may fail before a task, or the whole search, is given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmsched.base.errors import WmschedError

MOST_FAILED = 150  # candidates of a task that never ran, which is left then; of all, which ends the search


class TooManyFailed(WmschedError):
    """Whatever is measured fails: no schedule is at fault."""


class Failures:
    """How many measurements have failed, in the searches of all tasks that share it."""

    def __init__(self) -> None:
        self.count = 0  # of all, before any has run
        self.row = 0  # of tasks that have run, one after the other
        self.ran = False

    def add(self, results: Sequence[Any], *, known: bool = False) -> None:
        """Take results of a task, of which something has run before if it is `known`.

        Raises
        ------
        TooManyFailed
            Nothing at all has run: there is no compiler, or the wrong one. Or of tasks that did run nothing
            does any more: the disk is full, or the device is gone.
        """
        for result in results:
            failed = bool(int(result.error_no))
            self.ran = self.ran or not failed
            self.count += not self.ran
            self.row = self.row + known if failed else 0
            many = self.row if self.ran else self.count
            if many > MOST_FAILED:
                which = (
                    f"the last {many} candidates of tasks that ran before"
                    if self.ran
                    else f"all {many} candidates"
                )
                raise TooManyFailed(
                    f"{which} failed; what was measured is in the log. The last: "
                    f"{str(result.error_msg).strip()[-500:]}"
                )
