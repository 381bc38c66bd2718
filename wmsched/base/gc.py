"""Python's garbage collector held off while many short-lived objects are made.

Scoring a batch makes some thousand lists a candidate, and TVM and torch have filled the heap with a million
objects that stay. The collector, called by the number of new ones, goes through all of those every few
hundred candidates: a quarter of the time of a prediction in MetaSchedule.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collection until the end; as before, if there was none to begin with. Nests."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
