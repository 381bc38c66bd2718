"""What tests of either TVM do to a pool of its processes: delete it where deleting must not wait."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest


def deleted_by_a_starting_thread(pools: type) -> bool:
    """Whether a pool that has worked is gone, and its process too, once a thread that holds `threading`'s
    lock collects it."""
    lock = getattr(threading, "_shutdown_locks_lock", None)
    if lock is None:
        pytest.skip("this Python's threads start without such a lock")
    pool: Any = pools(1)
    assert pool.submit(divmod, 7, 2).result() == (3, 1)
    (worker,) = pool._worker_map.values()
    held: list[Any] = [pool]
    held.append(held)  # as an error's traceback holds it
    done = threading.Event()

    def start() -> None:
        with lock:
            gc.collect()
        done.set()

    gc.disable()
    try:
        del pool, held
        threading.Thread(target=start, daemon=True).start()  # where it waits for ever the test does not
        return done.wait(20) and not worker.is_alive()
    finally:
        gc.enable()
