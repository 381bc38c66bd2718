"""Tell whether a batch fails because of its schedules or of the machine; for both schedulers' measurers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from wmsched.base.errors import EnvironmentProblem

Entry = TypeVar("Entry")
Result = TypeVar("Result")

SUSPICIOUS_FAILURES = 4  # consecutive failures at a batch's end, as from a full disk or a lost device


def is_believable(
    measured: Iterable[tuple[Entry, Result]],
    ran: Callable[[Result], bool],
    must_work: Callable[[], str],
    *,
    stop: Callable[[], bool] = lambda: False,
    see_to: str = "the compiler, the device or the disk",
) -> Iterator[tuple[Entry, Result]]:
    """Yield a batch's measurements in order; hold failures back until a later entry ran.

    A known-good program is measured if the whole batch failed, or its last `SUSPICIOUS_FAILURES` entries.
    Failures are yielded only if that program ran.

    Parameters
    ----------
    measured : iterable of (entry, result)
        The batch, in the order of its results.
    ran : callable (result) -> bool
        Whether the entry was measured.
    must_work : callable () -> str
        Measures a program that every machine can run; returns "" or the failure's reason.
    stop : callable, optional
        Whether to end the batch, asked after each failure. Failures held back are then dropped.
    see_to : str
        What the error text tells the user to check.

    Raises
    ------
    EnvironmentProblem
        Nothing can be measured here, so no schedule is reported as failed.
    """
    failed: list[tuple[Entry, Result]] = []  # consecutive failures held back
    any_ran = False
    for entry, result in measured:
        if not ran(result):
            failed.append((entry, result))
            if stop():
                return
            continue
        yield from failed
        failed, any_ran = [], True
        yield entry, result
    if failed and (len(failed) >= SUSPICIOUS_FAILURES or not any_ran):
        reason = must_work()
        if reason:
            which = f"the last {len(failed)}" if any_ran else str(len(failed))
            raise EnvironmentProblem(
                f"none of {which} schedules could be measured, nor a program that must work: "
                f"{reason[-300:]}. What was measured before is kept. See to {see_to}, and go on then"
            )
    yield from failed
