"""Builds and times MetaSchedule candidates on this machine, in TVM's own child processes with time limits."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_builder.measure import MeasureOptions
from wmsched.types import MAX_SECONDS

logger = logging.getLogger("wmsched")

FAILED = [1e10]  # what TVM writes for a candidate without a time
WORKER_START = 15  # seconds


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

        from wmsched.backends.meta_build import build
        from wmsched.backends.meta_runner import checked
        from wmsched.resolve import usable_cores

        self.target = target
        kind = str(target.kind.name)
        self._device = "cpu" if kind in ("llvm", "c") else kind  # the runner takes a device's name
        self.problems: dict[str, int] = {}  # by what failed; the first of each is logged with its reason
        self._builder = builder or ms.builder.LocalBuilder(
            max_workers=options.builders or usable_cores(),
            # the start of a worker, with TVM's import, counts too
            timeout_sec=options.build_timeout + WORKER_START,
            f_build=build,
        )
        self._runner = checked(
            runner
            or ms.runner.LocalRunner(
                timeout_sec=options.run_timeout + WORKER_START,
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
        except Exception as error:  # TVM's builder itself failed, not a schedule; no common base
            self._note("the builder", error)
            built = [None] * len(inputs)
        for candidate, result in zip(candidates, built, strict=True):
            path = result.artifact_path if result is not None else None
            if path is None:
                self._note("a build", result.error_msg if result is not None else "")
                yield candidate, FAILED
                continue
            try:
                entry = RunnerInput(path, self._device, candidate.args_info)
                (future,) = self._runner.run([entry])
                found = future.result()
                times = [float(t) for t in found.run_secs or ()]
                if not times:
                    self._note("a run", found.error_msg)
            except Exception as error:
                self._note("the runner", error)
                times = []
            finally:
                with contextlib.suppress(OSError):
                    shutil.rmtree(Path(str(path)).parent)
            fine = bool(times) and all(math.isfinite(t) and 0 < t < MAX_SECONDS for t in times)
            yield candidate, times if fine else FAILED

    def _note(self, what: str, reason: Any) -> None:
        """Count a failure; log the first of its kind."""
        self.problems[what] = self.problems.get(what, 0) + 1
        if self.problems[what] == 1:
            logger.warning("%s failed: %s", what, str(reason).strip()[-600:] or "no reason given")
