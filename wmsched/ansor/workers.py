"""AutoScheduler builder and runner processes that stay for a whole run (needs its TVM).

AutoScheduler starts new builders and a new runner for each batch, two programs per builder. Each process
imports TVM first, which on few cores takes longer than building and timing a small kernel. `kept_workers`
keeps the processes. TVM still replaces one that crashes, hangs or fails. A runner is also replaced after a
failed program, which may have damaged its memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wmsched.toolchain.resolve import autoscheduler_tvm

MAX_PROCESS_USES = 256  # bounds the memory that TVM and LLVM leak in one process


@contextmanager
def kept_workers() -> Iterator[None]:
    """Keep the processes of local builders and runners until the end; nests; RPC runners stay unchanged."""
    module = autoscheduler_tvm().auto_scheduler.measure
    before: tuple[Any, Any] = (
        getattr(module, "PopenPoolExecutor", None),
        getattr(module, "PopenWorker", None),
    )
    if None in before or isinstance(before[1], _WorkerFactory):  # another TVM, or nested
        yield
        return
    pools, runners = _PoolFactory(before[0]), _WorkerFactory(before[1])
    module.PopenPoolExecutor, module.PopenWorker = pools, runners
    try:
        yield
    finally:
        module.PopenPoolExecutor, module.PopenWorker = before
        pools.close()
        runners.close()


class _PoolFactory:
    """Replacement of TVM's pool class: one pool for each number of builders and time limit."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._kept: dict[tuple[Any, Any], Any] = {}

    def __call__(
        self,
        max_workers: int | None = None,
        timeout: float | None = None,
        initializer: Any = None,
        initargs: tuple[Any, ...] = (),
        *more: Any,
        **named: Any,
    ) -> Any:
        if initializer is None or more or named:  # not a call by the local builder
            return self._make(max_workers, timeout, initializer, initargs, *more, **named)
        key = (max_workers, timeout)
        if key not in self._kept:
            uses = _use_limit(self._make, "maximum_process_uses")
            self._kept[key] = self._make(max_workers, timeout, initializer, initargs, **uses)
        pool = self._kept[key]
        for worker in getattr(pool, "_worker_map", {}).values():
            _restart_dead(worker)
        return pool

    def close(self) -> None:
        self._kept.clear()  # TVM's pools end their processes when they are deleted


class _WorkerFactory:
    """Replacement of TVM's worker class: one runner process."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._kept: _KeptWorker | None = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        if given or named:  # not a call by the local runner
            return self._make(*given, **named)
        if self._kept is None:
            self._kept = _KeptWorker(self._make(**_use_limit(self._make, "maximum_uses")))
        _restart_dead(self._kept.worker)
        return self._kept

    def close(self) -> None:
        if self._kept is not None:
            self._kept.worker.kill()
            self._kept = None


def _use_limit(make: Callable[..., Any], name: str) -> dict[str, int]:
    """Return the argument that limits a process's uses, if this TVM has it."""
    return {name: MAX_PROCESS_USES} if name in inspect.signature(make).parameters else {}


def _restart_dead(worker: Any) -> None:
    """Let TVM restart a process that ended between two batches, say by Ctrl-C."""
    if not worker.is_alive():
        worker.kill()


class _KeptWorker:
    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def send(self, *given: Any, **named: Any) -> None:
        self.worker.send(*given, **named)

    def recv(self) -> Any:
        result = self.worker.recv()
        if not (isinstance(result, tuple) and len(result) > 1 and result[1] == 0):  # 1: the error number
            self.worker.kill()
        return result
