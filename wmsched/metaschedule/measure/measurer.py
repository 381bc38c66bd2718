"""Measurer of MetaSchedule candidates, here or on a fleet, in TVM's child processes with time limits."""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import tvm
from tvm import IRModule, te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult

from wmsched.base.cores import name_threads, usable_cores
from wmsched.base.errors import EnvironmentProblem
from wmsched.measure.buffer_offsets import PLACES
from wmsched.measure.corrections import Corrections
from wmsched.measure.sanity import is_believable
from wmsched.metaschedule.measure.buffers import local_runner
from wmsched.metaschedule.measure.builder import (
    KeptBuilder,
    build,
    build_with_vector_math,
    export_shared,
)
from wmsched.metaschedule.measure.runner import SteadyRunner, checked, python_runner, times_of
from wmsched.toolchain import cuda
from wmsched.toolchain.resolve import device_name, is_cpu

logger = logging.getLogger("wmsched")

RETRY_PAUSE_SECONDS = 2.0  # before the builder is tried again
WORKER_START_SECONDS = 15.0  # added to time limits, which include a worker's start and TVM's import


class Measurer:
    """Builder and runner of candidates, a batch at a time.

    >>> for candidate, result in Measurer(target).measure(candidates):
    ...     print(result.run_secs)

    Parameters
    ----------
    target : tvm.target.Target
    timeout, run_timeout : float
        Maximum seconds of a build and of a run; by default both are `timeout`.
    min_repeat_ms : int
        Minimum milliseconds of a timing on all sets of buffers.
    repeat : int
        Timings on each set of buffers.
    places : int
        Sets of buffers on which a processor's programs are timed (`measure.buffers`).
    cache_flush : bool
        Whether a processor's caches are flushed before each timing.
    builders : int, optional
        Parallel builds; by default one a core.
    vector_math : bool
        Whether builds have vector code for exp, tanh and the like.
    builder, runner : optional
        Replacements of `KeptBuilder` and of TVM's local runner.
    devices : DeviceRunner, optional
        Times the programs of a batch on a fleet, all at once (`wmsched.metaschedule.rpc`); the options of a
        timing are then the fleet's.
    revises : bool
        Whether references of a processor's programs are revised (`wmsched.measure.evidence`). Whoever asks
        for it corrects what it has recorded by `corrections`.

    Attributes
    ----------
    corrections : Corrections or None
    latest : str
        The program that was timed last, as `corrections` names it.
    """

    def __init__(
        self,
        target: Any,
        *,
        timeout: float = 15.0,
        run_timeout: float | None = None,
        min_repeat_ms: int = 60,
        repeat: int = 1,
        places: int = PLACES,
        cache_flush: bool = True,
        builders: int | None = None,
        vector_math: bool = False,
        builder: Any = None,
        runner: Any = None,
        devices: Any = None,
        revises: bool = False,
    ) -> None:
        self.target, self.latest = target, ""
        # whether the user pressed Ctrl-C; checked after each program
        self.interrupted: Callable[[], bool] = lambda: False
        self.problems: dict[str, int] = {}  # counts by what failed; the first of each is logged
        self._device = device_name(target)  # the runner takes a device name
        self._builder = builder or KeptBuilder(
            max_workers=builders or usable_cores(),
            timeout_sec=timeout + WORKER_START_SECONDS,
            f_build=build_with_vector_math if vector_math else build,
            f_export=export_shared if devices is not None else None,
            torch=self._device not in ("cpu", "cuda"),
            check=cuda.check_libraries if self._device == "cuda" else None,
        )
        self._devices = devices
        if self._device == "cpu":  # `TunedModel` names its threads too
            name_threads(tvm)
        here = revises and runner is None and devices is None and self._device == "cpu"
        self.corrections = Corrections() if here else None
        self._runner = devices or checked(
            SteadyRunner(lambda: runner)
            if runner
            else steady_runner(
                target,
                places=places,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                cache_flush=cache_flush,
                timeout=(timeout if run_timeout is None else run_timeout) + WORKER_START_SECONDS,
                corrections=self.corrections,
            )
        )

    def measure(self, candidates: Sequence[Any]) -> Generator[tuple[Any, Any], None, None]:
        """Build `candidates` together, then time them: one by one here, all at once on a fleet.

        Yields
        ------
        (candidate, RunnerResult)
            In order, each as soon as it is timed; without run times if it cannot be built, run or timed.

        Raises
        ------
        EnvironmentProblem
            TVM's builder itself failed twice, or no device is left; no schedule is reported as failed.
        KeyboardInterrupt
            `interrupted` returned True; TVM turns Ctrl-C into another error.
        """
        inputs = [BuilderInput(candidate.sch.mod, self.target) for candidate in candidates]
        try:
            built = list(self._builder.build(inputs))
        except Exception as error:  # TVM's and the system's errors have no common base
            self._unless_interrupted()
            self._note("the builder", error)
            time.sleep(RETRY_PAUSE_SECONDS)
            try:
                built = list(self._builder.build(inputs))
            except Exception as again:
                raise EnvironmentProblem(
                    f"TVM's builder failed twice: {str(again).strip()[-300:]}; what was measured is kept."
                    " See whether the disk, memory or the number of processes is used up, and go on then"
                ) from again
        folders = [Path(str(found.artifact_path)).parent if _is_built(found) else None for found in built]
        entries = [
            RunnerInput(str(found.artifact_path), self._device, candidate.args_info)
            for candidate, found in zip(candidates, built, strict=True)
            if _is_built(found)
        ]
        results = self._results(entries)
        try:
            for candidate, found, folder in zip(candidates, built, folders, strict=True):
                if folder is None:
                    reason = str(found.error_msg)
                    self._note("a build", reason)
                    yield candidate, RunnerResult(None, reason)
                    continue
                result = next(results)
                self.latest = str(found.artifact_path)
                self._unless_interrupted()
                if not result.run_secs:
                    self._note("a run", result.error_msg)
                _remove(folder)
                yield candidate, result
        finally:  # a run that stops within a batch leaves untimed programs
            results.close()
            for folder in folders:
                _remove(folder)

    def _results(self, entries: Sequence[Any]) -> Generator[Any, None, None]:
        """Yield the result of each program in order."""
        if self._devices is None:
            for entry in entries:
                (future,) = self._runner.run([entry])
                yield future.result()
            return
        futures = python_runner(self._runner).run(list(entries))  # TVM's wrapper knows no cancel
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def _unless_interrupted(self) -> None:
        if self.interrupted():
            raise KeyboardInterrupt

    def _note(self, what: str, reason: Any) -> None:
        """Count a failure; log the first of its kind."""
        self.problems[what] = self.problems.get(what, 0) + 1
        if self.problems[what] == 1:
            logger.warning("%s failed: %s", what, str(reason).strip()[-600:] or "no reason given")


def steady_runner(target: Any, *, places: int = PLACES, cache_flush: bool = True, **options: Any) -> Any:
    """Return a search's runner for a target: `local_runner` with `options`, in a `SteadyRunner`.

    A GPU has one set of buffers and no flush, and gets a new process after a failure.
    """
    cpu = device_name(target) == "cpu"
    make = functools.partial(
        local_runner, places=places if cpu else 1, cache_flush=cache_flush and cpu, **options
    )
    return SteadyRunner(make, renewed=not cpu, torch=not cpu)


def _is_built(found: Any) -> bool:
    return found is not None and found.artifact_path is not None


def _remove(folder: Path | None) -> None:
    if folder is not None:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


class Believed:
    """Measurer that reports a failure only after it has checked that the machine works.

    Parameters
    ----------
    measurer : Measurer
    stop : callable, optional
        Whether to stop, asked after each failure; failures since the last success are then dropped.
    """

    def __init__(self, measurer: Measurer, stop: Callable[[], bool] = lambda: False) -> None:
        self._measurer = measurer
        self._stop = stop
        self._good: Any = None  # the last candidate that ran

    @property
    def problems(self) -> dict[str, int]:
        """Counts of failures by what failed."""
        return self._measurer.problems

    @property
    def corrections(self) -> Corrections | None:
        """The measurer's."""
        return self._measurer.corrections

    @property
    def latest(self) -> str:
        """The measurer's."""
        return self._measurer.latest

    def measure(self, candidates: Sequence[Any]) -> Generator[tuple[Any, Any], None, None]:
        """Build `candidates` together, then time them one by one.

        `wmsched.measure.sanity.is_believable` decides on failures. It tests the machine with the last
        candidate that ran, or else with a sum.

        Yields
        ------
        (candidate, RunnerResult)
            Each as soon as it is timed; without run times if it cannot be built, run or timed.

        Raises
        ------
        EnvironmentProblem
            The machine cannot measure anything; no schedule is reported as failed.
        """
        with closing(self._measurer.measure(candidates)) as measured:
            for candidate, result in is_believable(measured, _ran, self._check_machine, stop=self._stop):
                if _ran(result):
                    self._good = candidate
                yield candidate, result

    def _check_machine(self) -> str:
        """Measure the last candidate that ran, or else a sum; return "" or why it failed."""
        tried = self._good or _sum_candidate(self._measurer.target)
        ((_, result),) = self._measurer.measure([tried])
        return "" if _ran(result) else str(result.error_msg or "").strip() or "no run times"


def _ran(result: Any) -> bool:
    return times_of(result) is not None


def _sum_candidate(target: Any) -> Any:
    """Return a candidate that any machine of the target can run: 64 numbers plus one."""
    a = te.placeholder((64,), name="a")
    function = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")])
    schedule = Schedule(IRModule({"main": function}))
    if not is_cpu(target):
        (loop,) = schedule.get_loops(schedule.get_sblock("b"))
        schedule.bind(loop, "threadIdx.x")
    return ms.MeasureCandidate(schedule, ms.arg_info.ArgInfo.from_prim_func(function))
