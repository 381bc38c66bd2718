"""How well a bundle ranks the candidates that two searches proposed and a lent GPU timed, without the GPU.

    python -m benchmarks.tune.meta.pool_ranking POOL --bundles cuda-meta,work/bundles/mine
    python -m benchmarks.tune.meta.pool_ranking POOL --proposed PROPOSED --parcel PARCEL      # writes POOL
    of a parcel

A line of POOL has all timed candidates of one subgraph. They were chosen by the searches' own models, so
there are far more good ones among them than among random schedules; a bundle that they came from is at
home. None may be learnt from: they are the benchmark's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcomes.tables import Table
from benchmarks.plan import Line, read
from data_builder.offline_measure.time_parcel import seconds

FIRST = (1, 4, 16)
ALIKE = 0.02  # programs whose times differ by less are no pair to put in order


def lines(proposed: Sequence[Line], parcel: Path) -> list[Line]:
    """A line for each subgraph of the proposed runs, with what its candidates took there.

    Returns
    -------
    list of dict
        `records`: trace and arguments of each program, once; `seconds`: their medians.
    """
    timed = {key: statistics.median(values) for key, values in seconds(parcel).items() if values}
    found: dict[str, Line] = {}
    seen: set[tuple[str, str]] = set()
    for line in proposed:
        pool = found.setdefault(
            line["task"],
            {
                "kind": "pool",
                **{name: line[name] for name in ("task", "type", "target")},
                "records": [],
                "seconds": [],
            },
        )
        for row in line["proposed"]:
            if row["key"] in timed and (line["task"], row["key"]) not in seen:
                seen.add((line["task"], row["key"]))
                pool["records"].append(row["record"])
                pool["seconds"].append(timed[row["key"]])
    return list(found.values())


def told(scores: NDArray[np.float64], times: NDArray[np.float64]) -> tuple[float, list[float]]:
    """Share of pairs that are in order, and best time over the best of the first 1, 4 and 16.

    Parameters
    ----------
    scores : float [n]
        Higher is better.
    times : float [n]
        Seconds.
    """
    first, second = np.triu_indices(len(times), 1)
    gap = times[first] - times[second]
    apart = np.abs(gap) > ALIKE * np.minimum(times[first], times[second])
    ordered = (scores[first] < scores[second]) == (gap > 0)
    pairs = float(ordered[apart].mean()) if apart.any() else math.nan
    order = np.argsort(-scores, kind="stable")
    return pairs, [float(times.min() / times[order[:count]].min()) for count in FIRST]


def _scores(line: Line, models: Sequence[Any]) -> list[NDArray[np.float64]]:
    from tvm.s_tir import meta_schedule as ms

    from benchmarks.tune.meta import stock, workloads

    target = stock.target(line["target"])
    module = workloads.module(line["type"])
    workload, described = ms.database.Workload(module), target.export()
    candidates = [
        ms.database.TuningRecord.from_json(
            [trace, [time], described, arguments], workload
        ).as_measure_candidate()
        for (trace, arguments), time in zip(line["records"], line["seconds"], strict=True)
    ]
    context = ms.TuneContext(module, target=target, space_generator="post-order-apply", task_name="main")
    return [np.array(model.predict(context, candidates)) for model in models]


def main(argv: list[str] | None = None) -> int:
    """Print the table, or write the pool."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune.meta.pool_ranking")
    parser.add_argument("pool", type=Path, help="JSON lines, gzipped")
    parser.add_argument("--bundles", default="cuda-meta", help="names or folders, by commas (%(default)s)")
    parser.add_argument(
        "--proposed", type=Path, help="lines of `benchmarks.run --parcel`, to write the pool of"
    )
    parser.add_argument("--parcel", type=Path)
    options = parser.parse_args(argv)
    if options.proposed:
        found = lines([line for line in read(options.proposed) if "proposed" in line], options.parcel)
        text = "".join(json.dumps(line) + "\n" for line in found)
        options.pool.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{sum(len(line['seconds']) for line in found)} programs of {len(found)} tasks: {options.pool}")
        return 0
    from benchmarks.tune.meta import stock

    stock.meta_tvm()
    from tvm.target import Target

    from wmsched.metaschedule.cost_model import WorldModelCostModel
    from wmsched.metaschedule.intrinsics import import_intrinsics

    names = options.bundles.split(",")
    models = [WorldModelCostModel(name, diversity=0.0) for name in names]
    every: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in names}
    rows = []
    for line in read(options.pool):
        import_intrinsics(Target(json.loads(line["target"])))
        times = np.array(line["seconds"])
        cells = []
        for name, scores in zip(names, _scores(line, models), strict=True):
            every[name].append(told(scores, times))
            cells.append(_cell(*every[name][-1]))
        rows.append([line["task"], str(len(times)), *cells])
    means = [
        _cell(
            float(np.nanmean([pairs for pairs, _ in found])),
            [float(np.exp(np.mean(np.log(first)))) for first in zip(*(firsts for _, firsts in found))],
        )
        for found in every.values()
    ]
    rows.append(["**mean**", "", *means])
    counts = ", ".join(map(str, FIRST))
    note = f"Pairs in order; the best time over that of the best of the first {counts} (1: none is better)."
    print(
        Table(title="Ranking of a pool", head=["task", "programs", *names], rows=rows, note=note).markdown()
    )
    return 0


def _cell(pairs: float, firsts: Sequence[float]) -> str:
    return f"{100 * pairs:.1f} %; " + ", ".join(f"{first:.2f}" for first in firsts)


if __name__ == "__main__":
    raise SystemExit(main())
