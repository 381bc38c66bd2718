"""Second measurement of MetaSchedule's best schedules; `benchmarks.tune.remeasure` is AutoScheduler's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks.outcomes.outcomes import WRONG
from benchmarks.tune import child
from benchmarks.tune.buffers import Buffers
from benchmarks.tune.meta import stock
from benchmarks.tune.meta.verify import TOLERANCE, Verifier
from benchmarks.tune.remeasure import interleave
from wmsched.measure.cache_flush import TVM_FLUSH as FLUSH
from wmsched.toolchain.resolve import device_name, is_cpu

MIN_REPEAT_MS = 100  # its search repeats too (`benchmarks.tune.meta.calls`), so both are warm


def remeasure(spec: dict[str, Any]) -> dict[str, Any]:
    """Time each of `spec["records"]` `spec["rounds"]` times, interleaved; see `benchmarks.tune.remeasure`.

    Those with a true `spec["vector_math"]` are built so (`wmsched.codegen.register`). Whether they
    compute the right thing is looked at on a processor, where the first round is among them.
    """
    tvm = stock.meta_tvm()
    from benchmarks.tune.meta import workloads
    from wmsched.metaschedule.intrinsics import import_intrinsics

    first, records = int(spec.get("first", 0)), spec["records"]
    module = workloads.module(spec["row"]["type"])
    target = stock.target(spec["target"])
    import_intrinsics(target)
    device = tvm.runtime.device(device_name(target), 0)
    fill = tvm.get_global_func("tvm.contrib.random.random_fill")
    buffers = Buffers(lambda shape, dtype: tvm.runtime.empty(shape, dtype, device), fill, first=first)
    verifier = Verifier(module, target) if is_cpu(target) and first == 0 else None
    entries = interleave(
        list(zip(records, spec.get("vector_math", [False] * len(records)), strict=True)),
        lambda given: _timer(module, target, device, given[0], given[1], buffers, verifier),
        spec["rounds"],
        seed=first,
    )
    return {"status": "ok", "search": "meta_schedule", "rounds": spec["rounds"], "entries": entries}


def _timer(
    module: Any,
    target: Any,
    device: Any,
    record: str,
    vectors: bool,
    buffers: Buffers,
    verifier: Verifier | None,
) -> Callable[[], float]:
    """Build the record's program and return a function that times it once, in seconds.

    ValueError if the verifier finds it wrong.
    """
    from tvm.s_tir import meta_schedule as ms

    from wmsched.metaschedule.measure.builder import build, build_with_vector_math

    entry = ms.database.TuningRecord.from_json(json.loads(record), ms.database.Workload(module))
    built = (build_with_vector_math if vectors else build)(entry.as_measure_candidate().sch.mod, target)
    flush = FLUSH if target.kind.name == "llvm" else ""
    main = built.mod if hasattr(built, "mod") else built
    wrong = verifier.error(main, entry.args_info) if verifier is not None else None
    if wrong is not None and wrong > TOLERANCE:
        raise ValueError(f"{WRONG}: outputs differ by {wrong:.3g} of their largest")
    evaluate = main.time_evaluator(
        "main", device, number=1, repeat=1, min_repeat_ms=MIN_REPEAT_MS, f_preproc=flush
    )
    # the record's arguments, not the module's: a schedule may have transformed weights
    return buffers.timer(evaluate, entry.args_info)


if __name__ == "__main__":
    child.answer(remeasure)
