"""A runner for MetaSchedule whose results are times or errors, and nothing between.

TVM takes what a runner returns. One NaN is written to the database, where it counts as the best schedule, and
the file cannot be read again; a runner that raises ends the whole run. `checked` puts itself in front of any
runner and makes such results failures of their candidate.
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
    """A runner in front of another.

    Parameters
    ----------
    runner : Runner or "local", "rpc"
        As in ``ms.tune_tir(runner=)``.
    **options
        Passed to ``Runner.create`` where `runner` is a name.
    """
    return CheckedRunner(runner if isinstance(runner, Runner) else Runner.create(runner, **options))


@derived_object
class SteadyRunner(PyRunner):
    """Runs one program after the other, in a process whose buffers lie alike from start to start (`steady`).

    Parameters
    ----------
    make : callable () -> Runner
        TVM's runner. It starts its process when it is first asked, and again after a crash or a timeout.
    renewed : bool
        Whether another one is made after a failure: on a GPU every call fails after an illegal access.
    torch : bool
        Whether its process may import PyTorch, as a function of the user's may and what runs on a GPU.
    """

    def __init__(self, make: Callable[[], Any], *, renewed: bool = False, torch: bool = True) -> None:
        super().__init__()
        self.make, self.renewed = make, renewed
        with steady_buffers():
            self.runner, self.torch = started(make, torch=torch)

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """As TVM's: one future for each input, which is done."""
        found = []
        with steady_buffers(), no_torch(not self.torch):
            for one in runner_inputs:
                try:
                    found.append(self._run(one))
                except Exception as error:  # of the runner; what others took is known already
                    found.append(_Checked(None, f"the runner failed: {error}"[-2000:]))
        return found

    def _run(self, one: Any) -> Any:
        (future,) = _python(self.runner).run([one])
        failed = not future.result().run_secs  # asked for here: its process starts with steady buffers
        if self.renewed and failed:
            self.runner = self.make()
        return future


@derived_object
class CheckedRunner(PyRunner):
    """Passes results on; one that is no time becomes an error. Use `checked`."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.runner = runner

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """As TVM's: one future for each input."""
        try:
            futures = list(_python(self.runner).run(runner_inputs))
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
        """The checked result."""
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


def _python(runner: Any) -> Any:
    """A runner of Python's without TVM's object around it, through which Ctrl-C is an error like any other.

    It would be taken for the candidates' fault, and the whole batch recorded as failed.
    """
    return getattr(runner, "_inst", runner)


def times_of(result: Any) -> list[float] | None:
    """The run times of a RunnerResult; None where it has none that can be believed."""
    times = [float(t) for t in result.run_secs or ()]
    return times if times and all(math.isfinite(t) and 0 < t < MAX_SECONDS for t in times) else None
