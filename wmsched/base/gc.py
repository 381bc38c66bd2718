"""Pause Python's garbage collector while many short-lived objects are made.

Scoring a batch makes about a thousand lists a candidate, and TVM and torch keep a million objects on the
heap. The collector would scan all of them every few hundred candidates, a quarter of MetaSchedule's
prediction time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection during the block, unless it was disabled before. Nests."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
