"""Ctrl-C, and the signals that end a job, while TVM is at work."""

from __future__ import annotations

import signal
import threading
from typing import Any


def end_as_interrupted() -> None:
    """Have SIGTERM (Slurm, ``docker stop``) and SIGHUP end this process as Ctrl-C does: it says how to go on,
    and removes what lies in temporary folders. A second one ends it at once. What the user has set stays.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup has the second one ignored
                signal.signal(number, _end)


def _end(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    pressed = signal.getsignal(signal.SIGINT)
    if not callable(pressed):  # of a job that a script has put into the background
        raise SystemExit(128 + number)
    pressed(signal.SIGINT, frame)


class Interrupt:
    """Remembers that the user pressed Ctrl-C.

    An interrupt that arrives while TVM's C++ code is at work comes back as some other error, and one that
    arrives in a callback from there is lost: look at `pressed` between rounds. Leaving the context on
    any error after a press raises KeyboardInterrupt.
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
