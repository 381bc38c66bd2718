"""Times one model with each executor in turn, in a process of its own (see `benchmarks.tune.child`)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

from benchmarks.tune import child
from benchmarks.tune.remeasure import summary

MIN_REPEAT_SECONDS = 0.1  # as the tuned programs are measured: so much of repeats makes one timing
EXECUTORS = ("eager", "compile")


def compiler() -> str:
    """The C++ compiler that torch.compile would use on a CPU; "" if there is none."""
    from torch._inductor import config

    names = config.cpp.cxx if isinstance(config.cpp.cxx, (tuple, list)) else (config.cpp.cxx,)
    return next((found for name in (*names, "g++", "clang++") if name and (found := shutil.which(name))), "")


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Time `spec["model"]` by `spec["executors"]` in turn, `spec["rounds"]` times, on so many threads.

    Returns
    -------
    dict
        `entries`: for each executor a mapping with `status`, and `seconds`, `median`, `spread` and
        `warm_seconds` (of the first call, compilation included), or `error`.
    """
    import torch

    from wmsched.zoo import torch_models as models

    torch.set_num_threads(spec["threads"])
    model, data = models.build(spec["model"])
    entries: dict[str, dict[str, Any]] = {}
    runs: dict[str, Callable[[], Any]] = {}
    with torch.inference_mode():
        for executor in spec["executors"]:
            if executor == "compile" and not compiler():
                entries[executor] = {
                    "status": "error",
                    "error": "torch.compile needs a C++ compiler, none is here",
                }
                continue
            call = torch.compile(model) if executor == "compile" else model
            start = time.perf_counter()
            try:
                call(data)
            except Exception as error:  # whatever the compiler raises, the other executor is timed
                entries[executor] = {
                    "status": "error",
                    "error": f"{type(error).__name__}: {str(error)[-300:]}",
                }
                continue
            entries[executor] = {"status": "ok", "warm_seconds": time.perf_counter() - start, "seconds": []}
            runs[executor] = lambda call=call: call(data)  # type: ignore[misc]
            runs[executor]()
        for _ in range(spec["rounds"]):
            for executor, run in runs.items():
                entries[executor]["seconds"].append(once(run))
    for executor in runs:
        entries[executor] |= summary(entries[executor]["seconds"])
    return {"status": "ok", "entries": entries, "torch": torch.__version__}


def once(run: Callable[[], Any]) -> float:
    """Mean seconds of a call, over as many as fill the least time."""
    calls, start = 0, time.perf_counter()
    while True:
        run()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed >= MIN_REPEAT_SECONDS:
            return elapsed / calls


if __name__ == "__main__":
    child.answer(measure)
