"""Handle Ctrl-C and termination signals while TVM's C++ code runs."""

from __future__ import annotations

import signal
import threading
from typing import Any


def end_as_interrupted() -> None:
    """Make SIGTERM (Slurm, ``docker stop``) and SIGHUP act as Ctrl-C; a second signal kills the process.

    The process then prints how to resume and removes its temporary folders. Handlers that the user has set
    stay.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, _end)


def _end(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    pressed = signal.getsignal(signal.SIGINT)
    if not callable(pressed):  # a script's background job ignores SIGINT
        raise SystemExit(128 + number)
    pressed(signal.SIGINT, frame)


class Interrupt:
    """Context manager that remembers whether the user pressed Ctrl-C (`pressed`).

    TVM's C++ code turns an interrupt into another error, and TVM's callbacks lose it. So callers check
    `pressed` between rounds. After a press, any exception that leaves the block becomes KeyboardInterrupt.

    Examples
    --------
    >>> with Interrupt() as interrupt:
    ...     while not interrupt.pressed:
    ...         measure_round()
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.pressed and kind is not None:
            raise KeyboardInterrupt

    def _press(self, *_: object) -> None:
        self.pressed = True
        raise KeyboardInterrupt
