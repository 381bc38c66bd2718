"""How far kernels are from what the core can do: a bound on any method's speedup, whatever it knows.

A kernel takes at least its multiply-adds at the core's rate, and at least its tensors' bytes, each moved
once, at the rate of the smallest cache that could hold them all (`benchmarks.peak`). For subgraphs without
multiply-adds that bound is far off (exponentials, comparisons); the best known latency stands for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from benchmarks import ratios as stats
from benchmarks import suites
from benchmarks.outcomes import META, Outcomes, Setting, middle
from benchmarks.plan import Line
from benchmarks.tables import Table, mean

FLOAT_BYTES = 4
MULTIPLY_ADDS = ("conv", "dense", "matmul")


def seconds(flops: float, moved: int, peak: Line) -> float:
    """The least a kernel of so many operations and bytes takes on one core.

    Parameters
    ----------
    flops : a multiplication and an addition are two
    moved : bytes of its inputs and outputs
    peak : a line of `benchmarks.peak`
    """
    sizes = [size for size, _ in peak["bandwidth"]]
    holds = max((size for size in sizes if size <= moved), default=min(sizes))
    rate = max(rate for size, rate in peak["bandwidth"] if size >= holds)
    return max(flops / peak["gflops"], moved / rate) * 1e-9


def tensor_bytes(workload_key: str) -> int:
    """Bytes of a task's inputs and outputs: the shapes after the hash in its key, of float32."""
    _, *shapes = json.loads(workload_key)
    return sum(FLOAT_BYTES * math.prod(shape) for shape in shapes if isinstance(shape, list))


def tables(data: Outcomes) -> list[Table]:
    """For each search, its representatives' latencies over the core's least; nothing without a peak."""
    peaks = data.others.get("peak")
    if not peaks:
        return []
    found = []
    for base in [m for m in data.baselines if m in ("ansor", f"{META}xgb")]:
        ours = next((mine for mine, theirs in data.pairs() if theirs == base), "")
        found += [
            _table(data, base, ours, setting, peaks)
            for setting in data.settings
            if data.ratios(base, setting, ours, setting)
        ][-1:]
    return found


def _table(data: Outcomes, base: str, ours: str, setting: Setting, peaks: Sequence[Line]) -> Table:
    rows, over = [], {}
    for task, gains in data.ratios(base, setting, ours, setting).items():
        theirs = middle(data.of(task, base, setting))
        line = next(iter(data.of(task, base, setting).values())).line
        mine = theirs / stats.geometric_mean(gains)
        kin = [
            o.seconds
            for run, o in data.all.items()
            if run.task == task and run.method.startswith(META) == base.startswith(META)
        ]
        bounded = _adds(data.titles[task])
        least = (
            min(seconds(line["flop_ct"], tensor_bytes(line["workload_key"]), peak) for peak in peaks)
            if bounded
            else min(kin)
        )
        over[task] = [theirs / least]
        rows.append(
            [
                task,
                data.titles[task],
                f"{least * 1e3:.4g}" + ("" if bounded else " (best known)"),
                *(f"{one / least:.2f}" for one in (theirs, mine)),
            ]
        )
    rows.append(["**geometric mean**", "", "", mean(over), ""])
    best = max(peaks, key=lambda peak: peak["gflops"])
    return Table(
        title=f"What the core allows: {base}, {setting}",
        head=["task", "type", "least, ms", f"{base} over it", f"{ours} over it"],
        rows=rows,
        note=f"Measured: {best['gflops']:.0f} GFLOP/s of multiply-adds, "
        f"{best['bandwidth'][0][1]:.0f} to {best['bandwidth'][-1][1]:.0f} GB/s from the first cache to the "
        f"memory, one core. The mean is the speedup over {base} of kernels that all reach that; no cost "
        "model can have a larger one.",
    )


def _adds(kind: str) -> bool:
    entry = suites.BY_TYPE.get(kind)
    return entry is not None and any(name in entry.ops for name in MULTIPLY_ADDS)
