"""AutoScheduler's builder and runner processes kept for a whole run (needs its TVM).

AutoScheduler measures twice as many programs at a time as it has builders, and for each such batch starts
builders and a runner anew, every one of which imports TVM first. On few cores that takes longer than building
and timing a small kernel. Within `kept_workers` the processes stay: one that crashes, hangs or fails is
replaced as before, a runner also where a program failed in it, for what that has left in memory is not known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wmsched.toolchain.resolve import autoscheduler_tvm

USES = 256  # of a process before it is replaced: what TVM and LLVM do not free must not pile up


@contextmanager
def kept_workers() -> Iterator[None]:
    """Local builders and runners keep their processes until the end; nests. RPC runners are left alone."""
    module = autoscheduler_tvm().auto_scheduler.measure
    before: tuple[Any, Any] = (
        getattr(module, "PopenPoolExecutor", None),
        getattr(module, "PopenWorker", None),
    )
    if None in before or isinstance(before[1], _Runners):  # a TVM that does it otherwise; or we are within
        yield
        return
    pools, runners = _Pools(before[0]), _Runners(before[1])
    module.PopenPoolExecutor, module.PopenWorker = pools, runners
    try:
        yield
    finally:
        module.PopenPoolExecutor, module.PopenWorker = before
        pools.close()
        runners.close()


class _Pools:
    """In the place of TVM's pool class: gives out one pool for each number of builders and time limit."""

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
        if initializer is None or more or named:  # not the local builder's
            return self._make(max_workers, timeout, initializer, initargs, *more, **named)
        key = (max_workers, timeout)
        if key not in self._kept:
            uses = _uses(self._make, "maximum_process_uses")
            self._kept[key] = self._make(max_workers, timeout, initializer, initargs, **uses)
        pool = self._kept[key]
        for worker in getattr(pool, "_worker_map", {}).values():
            _forget_dead(worker)
        return pool

    def close(self) -> None:
        self._kept.clear()  # TVM's pools end their processes when they are deleted


class _Runners:
    """In the place of TVM's worker class: gives out one runner."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._kept: _Runner | None = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        if given or named:  # not the local runner's
            return self._make(*given, **named)
        if self._kept is None:
            self._kept = _Runner(self._make(**_uses(self._make, "maximum_uses")))
        _forget_dead(self._kept.worker)
        return self._kept

    def close(self) -> None:
        if self._kept is not None:
            self._kept.worker.kill()
            self._kept = None


def _uses(make: Callable[..., Any], name: str) -> dict[str, int]:
    """The argument that limits a process's uses, where this TVM has it."""
    return {name: USES} if name in inspect.signature(make).parameters else {}


def _forget_dead(worker: Any) -> None:
    """Have a process that ended between two batches (Ctrl-C goes to all) started anew, not noticed in use."""
    if not worker.is_alive():
        worker.kill()


class _Runner:
    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def send(self, *given: Any, **named: Any) -> None:
        self.worker.send(*given, **named)

    def recv(self) -> Any:
        result = self.worker.recv()
        if not (isinstance(result, tuple) and len(result) > 1 and result[1] == 0):  # an error's number
            self.worker.kill()
        return result
