"""Lets TVM's pools of processes end without waiting, for a wait there can last for ever.

A pool one of whose calls failed is part of a cycle (the error's traceback holds it), so it is deleted when
Python next collects garbage, in whichever thread that happens. Where that is a thread that is just starting,
it holds a lock of `threading`'s which ending the pool's own threads needs, and the whole search stands still,
without a word. TVM 0.27's own docstring warns of it; AutoScheduler's TVM makes a pool for every batch.
"""

from __future__ import annotations

import contextlib
from typing import Any


def kill_on_delete(pools: type) -> None:
    """Have TVM's `PopenPoolExecutor`s kill their processes when they are deleted, and wait for none.

    A pool that is asked to end, where it has a method for that, waits as before. Doing it again does nothing.
    """
    pools.__del__ = _end  # type: ignore[attr-defined]


def _end(pool: Any) -> None:
    if getattr(pool, "_shutdown", False):  # it was asked to
        return
    for worker in list(getattr(pool, "_worker_map", {}).values()):
        with contextlib.suppress(Exception):  # at the interpreter's end what it needs may be gone
            worker.kill()
    threads = getattr(pool, "_threadpool", None)
    if threads is not None:
        with contextlib.suppress(Exception):
            threads.shutdown(wait=False, cancel_futures=True)
