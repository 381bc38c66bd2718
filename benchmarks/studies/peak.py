"""`python -m benchmarks.studies.peak --out FILE`: what one core can do, beside which the tuned kernels stand.

A small matrix product out of the first cache, written for the registers, gives the float32 multiply-adds
a second that a kernel can have at most. Sums over arrays of growing size, read from one place or several
in turn, give the bytes a second that each cache and the memory can deliver; sums over arrays that were
flushed as AutoScheduler flushes its programs' give those of such a call. All as far as this TVM's code
generator lets them. The fastest of many repeats counts: what is asked is the ceiling, not the mean.
One line: kind "peak", `gflops`, `bandwidth` (pairs of bytes and GB/s), `flushed` (GB/s), `threads` (1).
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.plan import Results
from benchmarks.tune import child
from wmsched.measure import cache_flush

LANES = 16  # of a vector
ROWS, VECTORS = (2, 4, 6, 8, 12), (1, 2, 3, 4)  # of the blocks held in registers
DEPTH, BLOCKS = 64, 64
SIZES = tuple(1 << power for power in range(14, 28))  # bytes
SUMS = 8  # vectors that a sum over an array goes to
STREAMS = (1, 2, 4, 8, 16)  # places read in turn: the memory delivers more to several than to one
FLUSHED = tuple(1 << power for power in range(18, 25))  # bytes
REPEATS = 40
LIMIT_SECONDS = 900.0


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """The fastest register block's rate and shape, and the bandwidth at each size, on `spec["target"]`."""
    from wmsched.toolchain.resolve import autoscheduler_tvm, host_target

    tvm = autoscheduler_tvm()
    target = spec["target"] or host_target()
    blocks = [(rows, vectors * LANES) for rows in ROWS for vectors in VECTORS]
    gflops, block = max((_product(tvm, target, *block), block) for block in blocks)
    return {
        "status": "ok",
        "target": target,
        "gflops": gflops,
        "block": block,
        "bandwidth": [(size, max(_sum(tvm, target, size, streams) for streams in STREAMS)) for size in SIZES],
        "flushed": max(
            _sum(tvm, target, size, streams, flush=True) for size in FLUSHED for streams in STREAMS
        ),
        "threads": 1,
        "tvm": tvm.__version__,
    }


def _product(tvm: Any, target: str, rows: int, width: int) -> float:
    """GFLOP/s of `rows` x `width` accumulators that a loop over `DEPTH` adds products to, `BLOCKS` times."""
    from tvm import te

    a, b = te.placeholder((BLOCKS * rows, DEPTH), name="A"), te.placeholder((DEPTH, width), name="B")
    k = te.reduce_axis((0, DEPTH), name="k")
    c = te.compute((BLOCKS * rows, width), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = te.create_schedule(c.op)
    held = schedule.cache_write(c, "local")
    block, _ = schedule[c].split(c.op.axis[0], rows)
    schedule[held].compute_at(schedule[c], block)
    i, j = held.op.axis
    outer, lanes = schedule[held].split(j, LANES)
    schedule[held].reorder(held.op.reduce_axis[0], i, outer, lanes)
    for axis in (i, outer):
        schedule[held].unroll(axis)
    schedule[held].vectorize(lanes)
    _, last = schedule[c].split(c.op.axis[1], LANES)
    schedule[c].vectorize(last)
    return 2e-9 * BLOCKS * rows * width * DEPTH / _seconds(tvm, target, schedule, [a, b, c])


def _sum(tvm: Any, target: str, size: int, streams: int, *, flush: bool = False) -> float:
    """GB/s at which an array of so many bytes is read once, by vectors, from `streams` places in turn."""
    from tvm import te

    width = SUMS * LANES
    rows = size // 4 // width // streams
    a = te.placeholder((streams, rows, width), name="A")
    k, s = te.reduce_axis((0, rows), name="k"), te.reduce_axis((0, streams), name="s")
    c = te.compute((width,), lambda j: te.sum(a[s, k, j], axis=[k, s]), name="C")
    schedule = te.create_schedule(c.op)
    held = schedule.cache_write(c, "local")
    outer, lanes = schedule[held].split(held.op.axis[0], LANES)
    schedule[held].reorder(*held.op.reduce_axis, outer, lanes)
    schedule[held].unroll(outer)
    schedule[held].vectorize(lanes)
    return size * 1e-9 / _seconds(tvm, target, schedule, [c, a], flush=flush)


def _seconds(tvm: Any, target: str, schedule: Any, tensors: list[Any], *, flush: bool = False) -> float:
    """The fastest call; with `flush`, of calls before which all tensors but the first leave the caches."""
    import numpy as np

    function, device = tvm.build(schedule, tensors, target=target, name="main"), tvm.cpu()
    arrays = [tvm.nd.array(np.ones([int(n) for n in t.shape], np.float32), device) for t in tensors]
    how = {"f_preproc": cache_flush.TVM_FLUSH} if flush else {"min_repeat_ms": 2}
    evaluate = function.time_evaluator("main", device, number=1, repeat=REPEATS, **how)
    return float(min(evaluate(*arrays).results))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.peak", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--target", default="", help="TVM target (this machine's, from LLVM)")
    parser.add_argument("--out", type=Path, required=True, help="results file, may have other lines in it")
    options = parser.parse_args(argv)
    output = options.out.with_suffix("") / "peak.out"
    spec = {"target": options.target}
    outcome = child.call("benchmarks.studies.peak", spec, timeout=LIMIT_SECONDS, output=output)
    console = Console(stderr=True)
    if outcome["status"] != "ok":
        console.print(f"peak: {outcome['error']}", markup=False)
        return 1
    date = datetime.now(UTC).isoformat(timespec="seconds")
    Results(options.out).append({"kind": "peak", "date": date, **machine.describe(), **outcome})
    held = " x ".join(map(str, outcome["block"]))
    console.print(f"{outcome['gflops']:.1f} GFLOP/s on one core, {held} held in registers", markup=False)
    for size, rate in outcome["bandwidth"]:
        console.print(f"{size >> 10} KiB: {rate:.1f} GB/s", markup=False)
    console.print(f"flushed: {outcome['flushed']:.1f} GB/s", markup=False)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].endswith("spec.json"):  # as `benchmarks.tune.child` calls its steps
        child.answer(measure)
    else:
        sys.exit(main())
