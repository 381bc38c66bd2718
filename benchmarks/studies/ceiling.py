"""Distance of kernels from the core's peak: a bound on any method's speedup.

A kernel takes at least its multiply-adds at the core's rate, and at least its tensors' bytes, each moved
once, at the rate of the smallest cache that could hold them all (`benchmarks.studies.peak`). AutoScheduler
times calls for which all tensors but the first are flushed from the caches: those come at the rate of such.
For subgraphs without multiply-adds that bound is far off (exponentials, comparisons); the best known latency
stands for it. Nor is the bound in every search's reach, so the best schedule that any run has found stands
beside the methods.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Sequence

from benchmarks import suites
from benchmarks.outcomes import weighted
from benchmarks.outcomes.outcomes import META, Outcomes, Setting, middle
from benchmarks.outcomes.tables import Table, mean
from benchmarks.plan import Line
from wmsched import zoo

FLOAT_BYTES = 4
MULTIPLY_ADDS = ("conv", "dense", "matmul")
BEST_KNOWN = "best known"


def seconds(flops: float, moved: int, peak: Line, *, flushed: int = 0) -> float:
    """The least a kernel of so many operations and bytes takes on one core.

    Parameters
    ----------
    flops : a multiplication and an addition are two
    moved : bytes of its inputs and outputs
    peak : a line of `benchmarks.studies.peak`
    flushed : bytes of those that no cache holds when it starts
    """
    sizes = [size for size, _ in peak["bandwidth"]]
    holds = max((size for size in sizes if size <= moved), default=min(sizes))
    rate = max(rate for size, rate in peak["bandwidth"] if size >= holds)
    return max(flops / peak["gflops"], moved / rate, flushed / peak["flushed"]) * 1e-9


def tensor_bytes(workload_key: str) -> list[int]:
    """Bytes of each of a task's inputs and outputs: the shapes after the hash in its key, of float32."""
    _, *shapes = json.loads(workload_key)
    return [FLOAT_BYTES * math.prod(shape) for shape in shapes if isinstance(shape, list)]


def tables(data: Outcomes) -> list[Table]:
    """For each search, its representatives' latencies over the core's least; nothing without a peak."""
    peaks = data.others.get("peak")
    if not peaks:
        return []
    found = []
    for base in [m for m in data.baselines if m in ("ansor", f"{META}xgb")]:
        ours = next((mine for mine, theirs in data.pairs() if theirs == base), "")
        settings = [s for s in data.settings if data.ratios(base, s, ours, s)]
        if settings:
            found.append(_table(data, [base, ours], settings, peaks))
    return found


def _table(
    data: Outcomes, methods: Sequence[str], settings: Sequence[Setting], peaks: Sequence[Line]
) -> Table:
    cells = [(method, setting) for setting in settings for method in methods]
    over: dict[tuple[str, Setting], dict[str, list[float]]] = {cell: {} for cell in cells}
    known: dict[str, list[float]] = {}
    rows = []
    for task in data.representatives:
        measured = {cell: of for cell in cells if (of := data.of(task, *cell))}
        if not measured:
            continue
        latencies = {cell: middle(of) for cell, of in measured.items()}
        line = next(outcome.line for of in measured.values() for outcome in of.values())
        least, bounded = _least(data, task, methods[0], line, peaks)
        known[task] = [data.best_known(task, methods[0]) / least]
        for cell, latency in latencies.items():
            over[cell][task] = [latency / least]
        rows.append(
            [
                task,
                data.titles[task],
                f"{least * 1e3:.4g}" + ("" if bounded else " (best known)"),
                f"{known[task][0]:.2f}",
                *(f"{latencies[cell] / least:.2f}" if cell in latencies else "" for cell in cells),
            ]
        )
    rows.append(["**geometric mean**", "", "", mean(known), *(mean(over[cell]) for cell in cells)])
    return Table(
        title=f"What the core allows: {methods[0]}",
        head=[
            *("task", "type", "least, ms", f"{BEST_KNOWN} beside {methods[0]}"),
            *(f"{method}, {setting}" for method, setting in cells),
        ],
        rows=rows,
        note=_note(methods[0], peaks),
    )


def _note(baseline: str, peaks: Sequence[Line]) -> str:
    """What the least is, and how a baseline's mean is read."""
    best = max(peaks, key=lambda peak: peak["gflops"])
    return (
        f"Latencies over the least. Measured: {best['gflops']:.0f} GFLOP/s of multiply-adds, "
        f"{best['bandwidth'][0][1]:.0f} to {best['bandwidth'][-1][1]:.0f} GB/s from the first cache to the "
        f"memory, {best['flushed']:.0f} GB/s of what was flushed, one core. The mean of {baseline} is the "
        "speedup over it of a method whose kernels all reach that, or the best known where they have no "
        f"multiply-adds; over the mean of {BEST_KNOWN}, the speedup "
        "of a method that always takes the best schedule that any run here has found."
    )


def summary(data: Outcomes) -> list[Table]:
    """The means of `tables` alone, a line for each method and budget."""
    rows = [[name, cell] for table in tables(data) for name, cell in zip(table.head[3:], table.rows[-1][3:])]
    if not rows:
        return []
    return [
        Table(
            title="What the core allows, in the mean",
            head=["", "times the least latency"],
            rows=rows,
            note=_note("a baseline", data.others["peak"]),
        )
    ]


def models(data: Outcomes) -> list[Table]:
    """The weighted latencies of AutoScheduler's methods (Eq 13) over that of a model at the core's least."""
    peaks = data.others.get("peak")
    if not peaks or "ansor" not in data.baselines:
        return []
    ours = next((mine for mine, theirs in data.pairs() if theirs == "ansor"), "")
    cells = [(method, setting) for setting in data.settings for method in ("ansor", ours)]
    over: dict[tuple[str, Setting], dict[str, list[float]]] = {}
    leasts: dict[str, float] = {}
    for model, tasks in weighted.tasks_of().items():
        sums = {cell: found for cell in cells if (found := weighted.sums(data, model, *cell))}
        if not sums:
            continue
        method, setting = next(iter(sums))
        leasts[model] = 0.0
        for weight, names in tasks:
            outcome = next(iter(weighted.cell(data, names, method, setting).values()))
            leasts[model] += weight * _least(data, outcome.run.task, method, outcome.line, peaks)[0]
        for cell, found in sums.items():
            over.setdefault(cell, {})[model] = [statistics.median(found.values()) / leasts[model]]
    if not leasts:
        return []
    used = [cell for cell in cells if cell in over]
    table = [
        [
            model,
            f"{least * 1e3:.4g}",
            *(f"{over[cell][model][0]:.2f}" if model in over[cell] else "" for cell in used),
        ]
        for model, least in leasts.items()
    ]
    table.append(["**geometric mean**", "", *(mean(over[cell]) for cell in used)])
    return [
        Table(
            title="What the core allows: weighted model latency (Eq 13)",
            head=["model", "least, ms", *(f"{method}, {setting}" for method, setting in used)],
            rows=table,
            note="Over the sum of the tasks' least latencies; the best known where they multiply nothing.",
        )
    ]


def _least(data: Outcomes, task: str, method: str, line: Line, peaks: Sequence[Line]) -> tuple[float, bool]:
    """The least seconds of a task, and whether the core sets it; else it is the search's best known."""
    if not any(name in _ops(task, data.titles[task]) for name in MULTIPLY_ADDS):
        return data.best_known(task, method), False
    tensors = tensor_bytes(line["workload_key"])
    flushed = 0 if method.startswith(META) else sum(tensors[1:])
    return min(seconds(line["flop_ct"], sum(tensors), peak, flushed=flushed) for peak in peaks), True


def _ops(task: str, title: str) -> str:
    """What operators a task fuses, by its type or else by its name; "" where neither is known."""
    entry = suites.BY_TYPE.get(title)
    return str(entry.ops) if entry is not None else _ops_by_name().get(task, "")


@functools.cache
def _ops_by_name() -> dict[str, str]:
    return {row["name"]: str(row["ops"]) for row in zoo.rows()}
