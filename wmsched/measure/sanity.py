"""Whether a batch's failures are the schedules' own or the machine's; both schedulers' measurers ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from wmsched.base.errors import EnvironmentProblem

Entry = TypeVar("Entry")
Result = TypeVar("Result")

MANY = 4  # failures at the end of a batch: a disk that is full, or a device that is gone, looks so


def is_believable(
    measured: Iterable[tuple[Entry, Result]],
    ran: Callable[[Result], bool],
    must_work: Callable[[], str],
    *,
    stop: Callable[[], bool] = lambda: False,
    see_to: str = "the compiler, the device or the disk",
) -> Iterator[tuple[Entry, Result]]:
    """What was measured of a batch, as it comes, its failures once a later one ran.

    Where not one of the batch can be measured, or none of the last `MANY`, a program that must work is tried
    before that is believed; until then those are not yielded.

    Parameters
    ----------
    measured : iterable of (entry, result)
        The batch, as each is known.
    ran : callable (result) -> bool
        Whether it was measured.
    must_work : callable () -> str
        Measures a program that every machine can; "", or why it could not be.
    stop : callable, optional
        Whether it is enough: asked after each failure; those since the last that ran are not believed then.
    see_to : str
        What the message tells to look at.

    Raises
    ------
    EnvironmentProblem
        Nothing can be measured here: no schedule is at fault, so none is reported as failed.
    """
    failed: list[tuple[Entry, Result]] = []  # since the last one that was measured
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
    if failed and (len(failed) >= MANY or not any_ran):
        reason = must_work()
        if reason:
            which = f"the last {len(failed)}" if any_ran else str(len(failed))
            raise EnvironmentProblem(
                f"none of {which} schedules could be measured, nor a program that must work: "
                f"{reason[-300:]}. What was measured before is kept. See to {see_to}, and go on then"
            )
    yield from failed
