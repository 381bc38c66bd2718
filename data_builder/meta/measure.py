"""Builds and times MetaSchedule candidates on this machine, in TVM's own child processes with time limits."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_builder.measure import MeasureOptions
from wmsched.types import MAX_SECONDS

FAILED = [1e10]  # what TVM writes for a candidate without a time


class MetaMeasurer:
    """Measures batches of candidates of one program after the other.

    Parameters
    ----------
    options : MeasureOptions
        As for AutoScheduler.
    target : tvm.target.Target
    builder, runner : optional
        In place of TVM's local ones.
    """

    def __init__(
        self, options: MeasureOptions, target: Any, *, builder: Any = None, runner: Any = None
    ) -> None:
        from tvm.s_tir import meta_schedule as ms

        from wmsched.backends.meta_runner import checked
        from wmsched.resolve import usable_cores

        self.target = target
        self._builder = builder or ms.builder.LocalBuilder(
            max_workers=options.builders or usable_cores(), timeout_sec=options.build_timeout
        )
        self._runner = checked(
            runner
            or ms.runner.LocalRunner(
                timeout_sec=options.run_timeout,
                evaluator_config=ms.runner.EvaluatorConfig(
                    number=1,
                    repeat=options.repeat,
                    min_repeat_ms=options.min_repeat_ms,
                    enable_cpu_cache_flush=target.kind.name == "llvm",
                ),
            )
        )

    def measure(self, candidates: Sequence[Any]) -> Iterator[tuple[Any, list[float]]]:
        """Build `candidates` together, then time them one by one.

        Yields
        ------
        (candidate, seconds)
            As soon as each is known; `FAILED` for one that cannot be built, run or timed.
        """
        from tvm.s_tir.meta_schedule.builder import BuilderInput
        from tvm.s_tir.meta_schedule.runner import RunnerInput

        inputs = [BuilderInput(candidate.sch.mod, self.target) for candidate in candidates]
        try:
            built = list(self._builder.build(inputs))
        except Exception:  # TVM's builder itself failed, not a schedule; its errors have no common base
            built = [None] * len(inputs)
        for candidate, result in zip(candidates, built, strict=True):
            path = result.artifact_path if result is not None else None
            if path is None:
                yield candidate, FAILED
                continue
            try:
                entry = RunnerInput(path, str(self.target.kind.name), candidate.args_info)
                (future,) = self._runner.run([entry])
                times = [float(t) for t in future.result().run_secs or ()]
            except Exception:
                times = []
            finally:
                with contextlib.suppress(OSError):
                    shutil.rmtree(Path(str(path)).parent)
            fine = bool(times) and all(math.isfinite(t) and 0 < t < MAX_SECONDS for t in times)
            yield candidate, times if fine else FAILED
