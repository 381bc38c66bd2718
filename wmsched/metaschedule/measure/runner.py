"""MetaSchedule runner whose results are either times or errors.

Works around apache-tvm 0.27, which does not check a runner's results; remove when it does. It writes a NaN to
the database as the best schedule, and cannot read that file again. A runner that raises ends the whole run.
`checked` wraps any runner and turns both into failures of their candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, Runner, RunnerResult
from tvm.support.popen_pool import PopenPoolExecutor

from wmsched.measure.malloc_env import steady_buffers
from wmsched.schedules.types import MAX_SECONDS
from wmsched.toolchain.no_torch import no_torch, started
from wmsched.toolchain.worker_pools import kill_on_delete

kill_on_delete(PopenPoolExecutor)


def checked(runner: Any = "local", **options: Any) -> Any:
    """Return a runner that checks the results of another.

    >>> ms.tune_tir(mod, target, work_dir, 64, runner=checked("local"))

    Parameters
    ----------
    runner : Runner or "local", "rpc"
        As in ``ms.tune_tir(runner=)``.
    **options
        Options of ``Runner.create``, if `runner` is a name.
    """
    return CheckedRunner(runner if isinstance(runner, Runner) else Runner.create(runner, **options))


@derived_object
class SteadyRunner(PyRunner):
    """Runner of one program after another, in a process with stable buffer offsets (`malloc_env`).

    Parameters
    ----------
    make : callable () -> Runner
        Makes TVM's runner, which starts its process on first use and after a crash or a timeout.
    renewed : bool
        Whether to make a new runner after a failure: on a GPU every call fails after an illegal access.
    torch : bool
        Whether its process may import PyTorch, as GPU runs and a user's function may need.
    """

    def __init__(self, make: Callable[[], Any], *, renewed: bool = False, torch: bool = True) -> None:
        super().__init__()
        self.make, self.renewed = make, renewed
        with steady_buffers():
            self.runner, self.torch = started(make, torch=torch)

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Return one completed future for each input, like TVM's runner."""
        found = []
        with steady_buffers(), no_torch(not self.torch):
            for one in runner_inputs:
                try:
                    found.append(self._run(one))
                except Exception as error:  # of the runner; earlier results are kept
                    found.append(_Checked(None, f"the runner failed: {error}"[-2000:]))
        return found

    def _run(self, one: Any) -> Any:
        (future,) = python_runner(self.runner).run([one])
        failed = (
            not future.result().run_secs
        )  # waits here, so that the process starts inside `steady_buffers`
        if self.renewed and failed:
            self.runner = self.make()
        return future


@derived_object
class CheckedRunner(PyRunner):
    """Runner that turns a result without valid times into an error. Use `checked`."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.runner = runner

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Return one future for each input, like TVM's runner."""
        try:
            futures = list(python_runner(self.runner).run(runner_inputs))
        except Exception as error:  # the runner itself, not a schedule
            return [_Checked(None, f"the runner failed: {error}"[-2000:]) for _ in runner_inputs]
        missing = len(runner_inputs) - len(futures)
        found = [_Checked(future, "") for future in futures[: len(runner_inputs)]]
        return found + [_Checked(None, "the runner returned too few results") for _ in range(missing)]


@derived_object
class _Checked(PyRunnerFuture):
    def __init__(self, future: Any, error: str) -> None:
        super().__init__()
        self.future, self.error = future, error

    def done(self) -> bool:
        """Whether `result` will return at once."""
        return self.future is None or bool(self.future.done())

    def result(self) -> Any:
        """Return the checked result."""
        if self.future is None:
            return RunnerResult(None, self.error)
        try:
            found = self.future.result()
        except Exception as error:
            return RunnerResult(None, f"the runner failed: {error}"[-2000:])
        if times_of(found) is not None:
            return found
        times = [float(t) for t in found.run_secs or ()]
        return RunnerResult(None, str(found.error_msg) if found.error_msg else f"no run times: {times}")


def python_runner(runner: Any) -> Any:
    """Return a Python runner without TVM's wrapper.

    TVM's wrapper turns Ctrl-C into an ordinary error, and the whole batch would be recorded as failed.
    """
    return getattr(runner, "_inst", runner)


def times_of(result: Any) -> list[float] | None:
    """Return the run times of a RunnerResult in seconds; None if they are missing or not plausible."""
    times = [float(t) for t in result.run_secs or ()]
    return times if times and all(math.isfinite(t) and 0 < t < MAX_SECONDS for t in times) else None
