"""What `parcel_worker` times AutoScheduler's libraries with: a processor, and the runtime of its TVM.

Calls come one by one, each after the caches were flushed, as AutoScheduler's runner times on a processor;
the first argument is left in them, as there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from parcel_worker import Timer  # beside this file

CALL_SECONDS = 0.06  # of a program's calls together, but for three at least


class AnsorTimer(Timer):
    """As `parcel_worker.Timer`, in TVM 0.16 and on a processor."""

    def __init__(self) -> None:
        import numpy as np

        if not hasattr(np, "float_"):
            np.float_ = np.float64  # type: ignore[attr-defined, misc]  # TVM 0.16 wants the name
        import tvm

        self.np, self.runtime = np, tvm.runtime
        self.kind = "ansor"
        self.device = tvm.cpu()
        self.flush = flush()
        self.buffers: dict[str, list] = {}
        self.modules: dict[str, Any] = {}

    def tensor(self, values: Any) -> Any:
        """An array in memory."""
        return self.runtime.ndarray.array(values, self.device)

    def seconds(self, path: str, described: list, least_ms: float, repeats: int) -> list[float]:
        """Timings of single calls, as many as `CALL_SECONDS` holds, from 3 to ten times `repeats`."""
        module, given = self.load(path), self.arguments(described)
        run = module.entry_name
        module[run](*given)
        began = time.perf_counter()
        module[run](*given)
        once = time.perf_counter() - began
        count = min(10 * repeats, max(3, int(CALL_SECONDS / once)))
        evaluate = module.time_evaluator(run, self.device, number=1, repeat=count, f_preproc=self.flush)
        return [float(x) for x in evaluate(*given).results]

    def about(self) -> dict:
        """What a result line says of the processor."""
        import platform

        import tvm

        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        said = dict(line.split(":", 1) for line in lines if ":" in line)
        told = {name.strip(): value.strip() for name, value in said.items()}
        return {
            "kind": "cpu",
            "tvm": tvm.__version__,
            "python": platform.python_version(),
            "name": f"{told['model name']} (family {told['cpu family']}, model {told['model']})",
            "cores": len(os.sched_getaffinity(0)),
            "threads": int(tvm.runtime.num_threads()),
        }

    def outputs(self, path: str, described: list) -> list[float]:
        """None: the arguments of AutoScheduler's programs of a task may be laid out in different ways."""
        return []


def flush() -> str:
    """The function that flushes the caches: the quick one where it compiles here, otherwise TVM's."""
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # of this package
    from wmsched.measure import cache_flush

    return cache_flush.preprocessor(cache_flush.library())
