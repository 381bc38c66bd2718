"""Second measurement of MetaSchedule's best schedules; `benchmarks.remeasure` is AutoScheduler's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from benchmarks import child
from benchmarks.buffers import Buffers
from benchmarks.measuring import FLUSH
from benchmarks.meta import stock
from benchmarks.remeasure import MIN_REPEAT_MS, interleave


def remeasure(spec: dict[str, Any]) -> dict[str, Any]:
    """Time each of `spec["records"]` `spec["rounds"]` times, interleaved; see `benchmarks.remeasure`."""
    stock.meta_tvm()
    from benchmarks.meta import workloads
    from wmsched.backends.meta_intrinsics import import_intrinsics

    module = workloads.module(spec["row"]["type"])
    target = stock.target(spec["target"])
    import_intrinsics(target)
    buffers = Buffers(lambda shape, dtype: _filled(target, shape, dtype))
    entries = interleave(
        spec["records"], lambda record: _timer(module, target, record, buffers), spec["rounds"]
    )
    return {"status": "ok", "search": "meta_schedule", "rounds": spec["rounds"], "entries": entries}


def _timer(module: Any, target: Any, record: str, buffers: Buffers) -> Callable[[], float]:
    """Build the record's program and return a function that times it once, in seconds."""
    from tvm.s_tir import meta_schedule as ms

    from wmsched.backends.meta_build import build

    entry = ms.database.TuningRecord.from_json(json.loads(record), ms.database.Workload(module))
    built = build(entry.as_measure_candidate().sch.mod, target)
    # the record's, not the module's: a schedule may have transformed weights
    shapes = [(tuple(int(extent) for extent in info.shape), str(info.dtype)) for info in entry.args_info]
    flush = FLUSH if target.kind.name == "llvm" else ""
    main = built.mod if hasattr(built, "mod") else built
    evaluate = main.time_evaluator(
        "main", _device(target), number=1, repeat=1, min_repeat_ms=MIN_REPEAT_MS, f_preproc=flush
    )
    rounds = itertools.count()
    return lambda: float(evaluate(*buffers.at(next(rounds), shapes)).mean)


def _device(target: Any) -> Any:
    import tvm

    kind = str(target.kind.name)
    return tvm.runtime.device("cpu" if kind in ("llvm", "c") else kind, 0)


def _filled(target: Any, shape: tuple[int, ...], dtype: str) -> Any:
    import tvm

    tensor = tvm.runtime.empty(shape, dtype, _device(target))
    tvm.get_global_func("tvm.contrib.random.random_fill")(tensor)
    return tensor


if __name__ == "__main__":
    child.answer(remeasure)
