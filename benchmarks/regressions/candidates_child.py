"""Candidates a second in the wmsched that is on the path, of this checkout or of one before the rooms.

A request on standard input, an answer on standard output, both JSON. Nothing of `benchmarks` is imported, and
names are looked up at both places that they have had.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Batch = Callable[[], Any]  # scores one workload's candidates
EVERY = 16  # of the logs' workloads
BUNDLES = {"ansor": "x86-avx512", "meta": "x86-meta"}


def module(*names: str) -> Any:
    """Return the first module of these names that there is. ModuleNotFoundError without one."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if name == names[-1] or not str(error.name).startswith("wmsched"):
                raise
    raise AssertionError("no name was given")


def ansor(logs: Path) -> tuple[list[tuple[int, Batch]], Callable[[], None], Callable[[], Any]]:
    """Return batches of AutoScheduler's candidates, what forgets their scores, and what counts problems."""
    module("wmsched.toolchain.resolve", "wmsched.resolve").autoscheduler_tvm()
    model_of = module("wmsched.ansor.cost_model", "wmsched.backends.ansor_model").WorldModelCostModel
    task_of = module("wmsched.ansor.compute_dag", "wmsched.backends.workload").task_from_row
    model = model_of(BUNDLES["ansor"])
    rows = json.loads(gzip.decompress((logs / "workloads.json.gz").read_bytes()))
    batches: list[tuple[int, Batch]] = []
    for row in sorted(rows, key=lambda row: str(row["log"]))[::EVERY]:
        log = logs / "measure_records" / f"{str(row['log']).removesuffix('.gz')}.gz"
        lines = gzip.decompress(log.read_bytes()).splitlines()
        steps = [json.loads(line)["i"][1][1] for line in lines]
        keys = [json.dumps(step).encode() for step in steps]
        task = task_of(row, target=row["target"])
        batches.append((len(set(keys)), partial(model.predict_steps, task, keys, steps)))
    return batches, lambda: model.update([], []), lambda: model.problems


def meta(logs: Path) -> tuple[list[tuple[int, Batch]], Callable[[], None], Callable[[], Any]]:
    """Return batches of MetaSchedule's candidates, what forgets their scores, and what counts problems."""
    module("wmsched.toolchain.resolve", "wmsched.resolve").meta_schedule_tvm()
    model_of = module("wmsched.metaschedule.cost_model", "wmsched.backends.meta_schedule").WorldModelCostModel
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms

    model = model_of(BUNDLES["meta"])
    if model._library is None:
        raise RuntimeError("the native reader could not be compiled")
    workloads = gzip.decompress((logs / "database_workload.json.gz").read_bytes()).splitlines()[::EVERY]
    records: dict[int, list[Any]] = {}
    for line in gzip.decompress((logs / "database_tuning_record.json.gz").read_bytes()).splitlines():
        number, record = json.loads(line)
        records.setdefault(number, []).append(record)
    batches: list[tuple[int, Batch]] = []
    first = None
    for number, text in enumerate(workloads):
        workload = ms.database.Workload.from_json(json.loads(text))
        context, candidates = None, []
        for given in records.get(number * EVERY, []):
            record = ms.database.TuningRecord.from_json(given, workload)
            schedule = Schedule(workload.mod)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            candidates.append(ms.MeasureCandidate(schedule, record.args_info))
            context = context or ms.TuneContext(mod=workload.mod, target=record.target)
        first = first or context
        batches.append((len(candidates), partial(model.predict, context, candidates)))
    return batches, lambda: model.update(first, [], []), lambda: model.problems


def main() -> int:
    """Answer one request."""
    spec = json.load(sys.stdin)
    import wmsched

    found = Path(str(wmsched.__file__)).resolve().parents[1]
    if found != Path(spec["checkout"]).resolve():
        raise RuntimeError(f"wmsched is imported from {found}, not from {spec['checkout']}")
    batches, forget, problems = {"ansor": ansor, "meta": meta}[spec["scheduler"]](Path(spec["logs"]))
    digest = hashlib.sha256()
    for _, batch in batches:  # makes scorers, threads and buffers
        digest.update(batch().tobytes())
    count, times = sum(size for size, _ in batches), []
    for _ in range(spec["repeats"]):
        forget()
        began = time.perf_counter()
        for _, batch in batches:
            batch()
        times.append(time.perf_counter() - began)
    if problems():
        raise RuntimeError(f"candidates were not scored: {problems()}")
    rate = count / statistics.median(times) if times else 0.0
    print(json.dumps({"candidates": count, "rate": rate, "scores": digest.hexdigest()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
