"""Collects in two halves: schedules are sampled and built here, and timed on another machine.

    python -m data_builder.offline_measure.collect build PARCEL --target JSON [--trials N] [--tasks all]
    python data_builder/offline_measure/time_parcel.py PARCEL               # there; TVM's runtime is enough
    python -m data_builder.offline_measure.collect join PARCEL --out DATABASE

A GPU that is lent by the minute is kept from waiting for compilers so. `candidates.jsonl` in the parcel has a
line for each schedule: its program's number, its trace, target and arguments, and the key of its library.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from data_builder.base.store import write_json
from data_builder.build.databases import NAMES
from data_builder.collect.sampling import seed_of
from data_builder.metaschedule.measure import FAILED
from data_builder.offline_measure.time_parcel import DEVICE, rows, seconds
from data_builder.read.databases import RECORDS, WORKLOADS, append
from wmsched.base.errors import DatasetError
from wmsched.features.gpus import cuda_target
from wmsched.schedules.database import cut

CANDIDATES = "candidates.jsonl"


def build(
    folder: Path,
    target: Any,
    programs: list[tuple[int, Any]],
    trials: int,
    *,
    cost_model: str = "",
    note: Any = print,
) -> int:
    """Sample and build up to `trials` schedules of each program that the parcel has none of.

    Parameters
    ----------
    cost_model : str
        A bundle whose first choices are taken in place of random schedules.

    Returns
    -------
    int
        How many were built.
    """
    from tvm.s_tir.meta_schedule.builder import BuilderInput

    from data_builder.metaschedule.sampling import TraceSampler
    from data_builder.offline_measure.builder import ParcelBuilder, key_of
    from wmsched.metaschedule.cost_model import WorldModelCostModel
    from wmsched.metaschedule.intrinsics import import_intrinsics
    from wmsched.metaschedule.trace_reader import described, plain, trace_json

    import_intrinsics(target)
    builder = ParcelBuilder(folder)
    model = WorldModelCostModel(cost_model) if cost_model else None
    cut(folder / CANDIDATES)
    done = {row["number"] for row in rows(folder / CANDIDATES)}
    count = 0
    for number, program in programs:
        if number in done:
            continue
        mod = program.module()
        maker = (lambda: model) if model is not None else None
        sampler = TraceSampler(mod, target, measured=set(), cost_model=maker, name=program.desc)
        chosen = sampler.next(trials, guided=model is not None, seed=seed_of(str(number)))
        found = [candidate for candidate, _ in chosen]
        results = builder.build([BuilderInput(candidate.sch.mod, target) for candidate in found])
        built = 0
        for candidate, result in zip(found, results, strict=True):
            if not (key := key_of(result)):
                continue  # not the schedule's time, but the compiler's: nothing to time
            record = [trace_json(candidate.sch.trace), plain(target.export()), described(candidate.args_info)]
            append(folder / CANDIDATES, {"number": number, "key": key, "record": record})
            built += 1
        count += built
        note(f"{number} {program.desc}: {built} of {len(found)} built")
    return count


def join(folder: Path, out: Path, programs: list[Any]) -> dict[str, int]:
    """Write a MetaSchedule database of the candidates and what the other machine timed.

    Their target names the GPU that they ran on, where that is another board of the one they were built for.

    Raises
    ------
    DatasetError
        There is a database already, or nothing was timed.
    """
    from tvm.s_tir.meta_schedule.database import Workload

    timed = seconds(folder)
    model = _model(folder)
    if not timed:
        raise DatasetError(f"{folder} has no seconds: time its programs with parcel_time.py first")
    if (out / RECORDS).exists():
        raise DatasetError(f"{out} has a database already: give another folder")
    out.mkdir(parents=True, exist_ok=True)
    lines: dict[int, int] = {}
    names: dict[str, Any] = {}
    counts = {"records": 0, "failed": 0, "untimed": 0}
    for row in rows(folder / CANDIDATES):
        if row["key"] not in timed:
            counts["untimed"] += 1
            continue
        number = row["number"]
        if number not in lines:
            program = programs[number]
            workload = [str(part) for part in Workload(program.module()).as_json()]
            append(out / WORKLOADS, workload)
            names[workload[0]] = [program.network, program.desc]
            lines[number] = len(lines)
        trace, target, arguments = row["record"]
        target = {**target, "model": model} if model else target
        times = timed[row["key"]]
        append(out / RECORDS, [lines[number], [trace, times or FAILED, target, arguments]])
        counts["records"] += 1
        counts["failed"] += not times
    write_json(out / NAMES, names)
    return counts


def _model(folder: Path) -> str:
    """The `model` of the CUDA target of the GPU that a parcel was timed on; "" for a processor."""
    told = next(iter(rows(folder / DEVICE)), {})
    return str(cuda_target(told["name"], told["capability"])["model"]) if told.get("name") else ""


def main(argv: list[str] | None = None) -> None:
    from data_builder.metaschedule.programs import read_programs, select
    from wmsched.toolchain.resolve import meta_schedule_tvm

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("build", "join"))
    parser.add_argument("parcel", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--programs", default="train")
    parser.add_argument("--tasks", default="all")
    parser.add_argument("--cost-model", default="", help="a bundle; without one schedules are random")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    meta_schedule_tvm()
    programs = read_programs(options.programs)
    if options.what == "build":
        from wmsched.toolchain.targets import meta_target

        chosen = select(programs, options.tasks)
        target = meta_target(options.target)
        build(options.parcel, target, chosen, options.trials, cost_model=options.cost_model)
    else:
        print(join(options.parcel, options.out, programs))


if __name__ == "__main__":
    main()
