"""Worker processes that may die: each job is reported, none takes the others with it.

The pools of the standard library break as a whole when one process crashes, which native code under hostile
input does. Here each worker has a pipe of its own; its end is the end of the worker and of nothing else.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

J = TypeVar("J")

Beat = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[J]):
    """How one attempt at a job ended.

    Attributes
    ----------
    kind : str
        "done" with `result`; "failed" with the error's text in `why`; "died" (crashed, killed, or hung) with
        what is
        known in `why`, and the last beat in `position` and `place` (-1 and "" before the first).
    """

    kind: str
    job: J
    result: Any = None
    why: str = ""
    position: int = -1
    place: str = ""


@dataclass
class _Worker(Generic[J]):
    process: BaseProcess
    pipe: Connection
    job: J
    heard: float
    position: int = -1
    place: str = ""


def run_jobs(
    jobs: Sequence[J],
    work: Callable[[J, Beat], Any],
    *,
    processes: int,
    again: Callable[[Outcome[J]], J | None],
    stall_seconds: float = 300.0,
) -> Iterator[Outcome[J]]:
    """Do jobs in worker processes; yield each attempt's outcome as it ends.

    Parameters
    ----------
    jobs : sequence
        Picklable jobs, taken in order.
    work : callable (job, beat) -> picklable
        A function of an importable module. It calls `beat(position, place)` as it gets on.
    processes : int
        How many workers at a time.
    again : callable (outcome) -> job or None
        Asked after a worker died; a job it returns is done next, None gives the job up.
    stall_seconds : float
        A worker without a beat for so long counts as hung and is killed.
    """
    context = multiprocessing.get_context("spawn")  # TVM's threads do not survive a fork
    waiting = list(reversed(jobs))
    idle: list[tuple[BaseProcess, Connection]] = []
    busy: dict[Connection, _Worker[J]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                process, pipe = idle.pop() if idle else _start(context, work)
                worker = _Worker(process, pipe, waiting.pop(), time.monotonic())
                busy[pipe] = worker
                # One that died while idle: the end of its pipe is read below.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    pipe.send(worker.job)
            for pipe in (pipe for pipe in wait(list(busy), timeout=1.0) if isinstance(pipe, Connection)):
                outcome = _hear(busy[pipe])
                if outcome is None:
                    continue
                worker = busy.pop(pipe)
                if outcome.kind == "died":
                    _end(worker.process)
                    follow = again(outcome)
                    if follow is not None:
                        waiting.append(follow)
                else:
                    idle.append((worker.process, pipe))
                yield outcome
            for worker in busy.values():
                if time.monotonic() - worker.heard > stall_seconds:
                    _end(worker.process)  # the pipe's end is heard in the next round
    finally:
        for process, _ in [*idle, *((worker.process, None) for worker in busy.values())]:
            _end(process)


def _start(context: Any, work: Callable[..., Any]) -> tuple[BaseProcess, Connection]:
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, work), daemon=True)
    process.start()
    there.close()
    return process, here


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join()


def _hear(worker: _Worker[J]) -> Outcome[J] | None:
    """Read one message; None for a beat."""
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join(timeout=5)
        code = worker.process.exitcode
        if code is not None and code < 0:
            why = f"worker killed by {signal.Signals(-code).name}"
        else:
            why = f"worker ended with exit status {code}"
        return Outcome("died", worker.job, why=why, position=worker.position, place=worker.place)
    worker.heard = time.monotonic()
    if kind == "beat":
        worker.position, worker.place = value
        return None
    if kind == "done":
        return Outcome("done", worker.job, result=value)
    return Outcome("failed", worker.job, why=value)


def _serve(pipe: Connection, work: Callable[..., Any]) -> None:
    """The worker's main loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    while True:
        try:
            job = pipe.recv()
        except EOFError:  # the parent is gone
            return
        try:
            message = ("done", work(job, lambda position, place: pipe.send(("beat", (position, place)))))
        except BrokenPipeError:
            return
        except Exception as error:
            message = ("failed", f"{type(error).__name__}: {error}")
        pipe.send(message)
