"""Builder and runner, the same for every method. Needs AutoScheduler's TVM.

On a CPU in the builder's and runner's processes here; on a GPU through a local RPC server, as TVM's own
tutorials do, since a kernel that fails there takes its process with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wmsched.toolchain.resolve import host_target, is_cpu

BUILD_SECONDS = 15
RUN_SECONDS = 10
GPU_MIN_REPEAT_MS = 300  # TVM's advice there


def search_task(row: dict[str, Any], target: str, threads: int = 0) -> Any:
    """The SearchTask of a zoo row, for the target given or this machine.

    Parameters
    ----------
    threads : int
        Of a processor that is emulated (`benchmarks.tune.emulated`); 0: as many as TVM takes here.
    """
    from wmsched.ansor.compute_dag import hardware_tuple, task_from_row

    task = task_from_row(row, target=target or host_target())
    if not threads:
        return task
    from tvm.auto_scheduler import HardwareParams

    params = HardwareParams(threads, *hardware_tuple(task.hardware_params)[1:])
    return task_from_row(row, target=task.target, hardware_params=params)


def refused(before: str, target: str) -> dict[str, Any]:
    """The outcome of a run, an error, whose results file has runs compiled for another target `before`."""
    if before in ("", target):
        return {}
    text = (
        f'the file has runs compiled for "{before}", and this one would be for "{target}": no ratio of the '
        "two means anything; give another --out, or that --target"
    )
    return {"status": "error", "error": text, "problems": {}}


class Measurer:
    """AutoScheduler's ProgramMeasurer writing to a log, and what must live as long as it does.

    On a CPU a candidate is timed by calls with flushed caches: TVM's runner sets `number` to 1 and
    `min_repeat_ms` to 0 where it is asked to flush. `benchmarks.tune.remeasure` times such calls too. How
    many, on how many sets of buffers, `wmsched.measure.buffer_offsets` says.
    """

    def __init__(self, log: Path, target: Any) -> None:
        from tvm import auto_scheduler

        runner, self._server = local_runner(target)
        self.program_measurer = auto_scheduler.measure.ProgramMeasurer(
            auto_scheduler.LocalBuilder(timeout=BUILD_SECONDS),
            runner,
            [auto_scheduler.RecordToFile(str(log))],
            verbose=0,
        )


def local_runner(target: Any, *, repeat: int = 1) -> tuple[Any, Any]:
    """A runner of this machine, and what must live as long as it does; `repeat` timings on a CPU."""
    from tvm import auto_scheduler

    if is_cpu(target):
        runner = auto_scheduler.LocalRunner(timeout=RUN_SECONDS, repeat=repeat, enable_cpu_cache_flush=True)
        return runner, None
    server = auto_scheduler.LocalRPCMeasureContext(
        timeout=RUN_SECONDS, number=1, repeat=1, min_repeat_ms=GPU_MIN_REPEAT_MS
    )
    return server.runner, server
