"""Runs whose programs are built here and timed on another machine: `benchmarks.run --parcel FOLDER`.

    python -m benchmarks.run --parcel PARCEL --target JSON --methods meta-xgb,meta-wmsched ... --out PROPOSED
    python data_builder/offline_measure/time_parcel.py PARCEL --again 7         # there
    python -m benchmarks.tune.meta.deferred PROPOSED --parcel PARCEL --out RESULTS

A search of one round learns nothing of what is measured: all its candidates are there before the first is
timed, and a GPU that is lent by the minute need not wait for it. So a run must have its budget in one
round. Lines say "deferred": their curves go by trials alone, and the seconds of a search are those of
proposing and building.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import suites
from benchmarks.plan import Results, Run, read
from benchmarks.tune.remeasure import summary
from data_builder.offline_measure.parcel_worker import drawn, places
from data_builder.offline_measure.time_parcel import AGAIN, DEVICE, RUNS, rows, seconds

Line = dict[str, Any]
META = "meta_schedule"
TOLERANCE = 1e-3  # of a program's outputs: what another order of float32 sums may change


def check(runs: Sequence[Run]) -> None:
    """ValueError for a run of several rounds."""
    for run in runs:
        if run.round_size != run.budget:
            raise ValueError(
                f"--parcel: {run.method} with {run.budget} trials in rounds of {run.round_size} learns from "
                "what it measures: give budgets of at most one round"
            )


def callback(proposed: list[Line]) -> Any:
    """A measure callback that appends each candidate: its library's key, or "", and its record."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from data_builder.offline_measure.builder import key_of
    from wmsched.metaschedule.trace_reader import described, trace_json

    @derived_object
    class Note(ms.measure_callback.PyMeasureCallback):
        """Hears of each round's candidates."""

        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            for candidate, result in zip(candidates, built, strict=True):
                record = [trace_json(candidate.sch.trace), described(candidate.args_info)]
                proposed.append({"key": key_of(result), "record": record})

    return Note()


def outcome(proposed: list[Line], parcel: Path, task: str, told: Line) -> Line:
    """The result line's fields of a run whose programs are in the parcel."""
    keys = [row["key"] for row in proposed]
    if not any(keys):
        none = f"none of {len(keys)} programs could be built"
        return {"status": "error", "error": none, "problems": told["problems"]}
    with open(parcel / RUNS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({"task": task, "keys": [key for key in keys if key]}) + "\n")
    return {"status": "ok", "deferred": True, "proposed": proposed, **told}


def finished(lines: Sequence[Line], parcel: Path, logs: Path | None = None) -> Iterator[Line]:
    """Result lines of runs and of second measurements, with what the other machine timed.

    AutoScheduler's runs get their logs, with these times, in the folder `logs`.

    Yields
    ------
    dict
        A "run" for each proposed one, and a "remeasure" for each task that was timed again.
    """
    timed = seconds(parcel)
    there = next(iter(rows(parcel / DEVICE)), {})
    best: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        if line["status"] != "ok":  # it proposed nothing
            yield line
            continue
        run, key = _finish(line, timed)
        run |= {"device": there} | {name: there[name] for name in ("threads",) if name in there}
        if logs is not None and line.get("search") != META:
            slug = f"{Run.of(line).slug}.json"
            run["log"] = f"{logs.name}/{slug}"
            write_log(line, timed, logs / slug)
        if run["status"] == "ok":
            best.setdefault(run["task"], {}).setdefault(key, []).append(run)
        yield run
    for row in rows(parcel / AGAIN):
        entries = []
        for key, program in row["programs"].items():
            if runs := best.get(row["task"], {}).get(key):
                example = runs[0]
                entry = _entry(program, example["type"] if example.get("search") == META else "")
                entries += [entry | Run.of(run).fields() | {"record": run["best_record"]} for run in runs]
        if entries:
            kept = {name: example[name] for name in ("machine", "cpu", "cores", "versions", "git")}
            yield {"kind": "remeasure", "task": row["task"], **kept, "device": there} | {
                "status": "ok",
                **({"search": META} if example.get("search") == META else {}),
                "rounds": max(len(entry.get("seconds", [])) for entry in entries),
                "entries": entries,
            }


def _entry(program: Line, kind: str) -> Line:
    """What a second measurement's line says of a program, after a look at what it computes.

    AutoScheduler's, of no `kind` here, have their weights laid out in ways of their own: nothing is compared.
    """
    if not program["seconds"]:
        return {"error": "it did not run again"}
    if not kind:
        return {"seconds": program["seconds"], **summary(program["seconds"])}
    if not program["outputs"]:
        return {"error": "nobody has looked at what it computes"}
    gap = difference(program["outputs"], kind)
    if not gap <= TOLERANCE:
        return {"error": f"it computes something else than PyTorch: {gap:.1e} of the largest value"}
    return {"seconds": program["seconds"], **summary(program["seconds"]), "difference": gap}


def difference(outputs: Sequence[float], kind: str) -> float:
    """Largest difference from PyTorch's at the places that `parcel_time` looked at, over the largest value.

    Infinite where a place was never written.
    """
    import numpy as np
    import torch

    from benchmarks.tune.pytorch_subgraphs import program

    shapes = suites.BY_TYPE[kind].shapes
    with torch.inference_mode():
        given = [torch.from_numpy(values) for values in drawn(shapes)]
        wanted = program(suites.BY_TYPE[kind], given)().numpy().ravel()[places(shapes[-1])]
    *found, unwritten = outputs
    if unwritten or len(found) != len(wanted):
        return float("inf")
    return float(np.abs(np.array(found) - wanted).max() / np.abs(wanted).max())


def _finish(line: Line, timed: dict[str, list[float]]) -> tuple[Line, str]:
    """The result line of a proposed run, and the key of its best program."""
    line = dict(line)
    proposed = line.pop("proposed")
    best, best_at, curve = float("inf"), -1, []
    failed = untimed = 0
    for trial, row in enumerate(proposed, start=1):
        untimed += bool(row["key"]) and row["key"] not in timed
        times = timed.get(row["key"], [])
        if not times:
            failed += 1
        elif (found := statistics.median(times)) < best:
            best, best_at = found, trial - 1
            curve.append([trial, 0.0, found])
    if untimed or best_at < 0:
        why = f"{untimed} of {len(proposed)} programs were not timed" if untimed else "no program ran"
        return line | {"status": "error", "error": why, "problems": {}}, ""
    curve.append([len(proposed), 0.0, best])
    chosen = proposed[best_at]
    record = _record(chosen["record"], timed[chosen["key"]], line["target"])
    told = {"trials": len(proposed), "failed": failed, "curve": curve, "best_seconds": best}
    return line | told | {"best_record": record}, chosen["key"]


def _record(proposed: Any, times: list[float], target: str) -> str:
    """A candidate's record as its search would have written it after the measurement."""
    if isinstance(proposed, str):  # AutoScheduler's, with a made-up time
        record = json.loads(proposed)
        record["r"][0] = times
        return json.dumps(record)
    trace, arguments = proposed
    return json.dumps([trace, times, json.loads(target), arguments])


def write_log(line: Line, timed: dict[str, list[float]], path: Path) -> None:
    """AutoScheduler's log of a run, with the times from there; programs that have none are left out."""
    records = [
        _record(row["record"], timed[row["key"]], line["target"])
        for row in line["proposed"]
        if timed.get(row["key"])
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(record + "\n" for record in records), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Write the results of proposed runs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tune.meta.deferred", description=(__doc__ or "")[:95]
    )
    parser.add_argument("proposed", type=Path, help="lines of `benchmarks.run --parcel`")
    parser.add_argument("--parcel", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    results = Results(options.out)
    proposed = [line for line in read(options.proposed) if line["kind"] == "run"]
    for line in finished(proposed, options.parcel, options.out.with_suffix("")):
        results.append(line)
    print(f"{len(results.lines)} lines: {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
