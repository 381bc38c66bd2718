"""Let TVM's process pools be deleted without waiting, because the wait can deadlock.

Works around TVM 0.27, whose docstring warns of it, and AutoScheduler's TVM, which makes a pool a batch;
remove when `PopenPoolExecutor.__del__` does not join threads. A pool with a failed call is part of a
reference cycle through the error's traceback. The garbage collector may delete it in a thread that is just
starting and holds `threading`'s lock. Ending the pool's threads needs that lock, so the search would hang
silently.
"""

from __future__ import annotations

import contextlib
from typing import Any


def kill_on_delete(pools: type) -> None:
    """Make TVM's `PopenPoolExecutor` kill its processes on deletion, without waiting for them.

    An explicit shutdown still waits. Calling this twice is harmless.
    """
    pools.__del__ = _end  # type: ignore[attr-defined]


def _end(pool: Any) -> None:
    if getattr(pool, "_shutdown", False):  # shut down explicitly
        return
    for worker in list(getattr(pool, "_worker_map", {}).values()):
        with contextlib.suppress(Exception):  # modules may be gone when the interpreter exits
            worker.kill()
    threads = getattr(pool, "_threadpool", None)
    if threads is not None:
        with contextlib.suppress(Exception):
            threads.shutdown(wait=False, cancel_futures=True)
