"""A machine made of records, or of a model: MetaSchedule's own search, with nothing compiled or timed.

`machine` gives a builder and a runner for ``tune_tir``. What they tell is a fixed function of the scheduled
program, so a run takes seconds, has no noise, and is the same for every cost model that proposes the same. It
is for tests of the search and of the benchmark; lines of such runs say "simulated", and are no result.

Of a recorded database (`Recorded`) a program has the seconds that were measured; one that the record does not
have gets those of the recorded program nearest to it, so that nothing looks better than what was measured.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from benchmarks.tune.meta.simulated_gpu import Refused, RooflineGpu
from wmsched.base.errors import LogError, WmschedError
from wmsched.schedules.traces import trace_of

MODEL = "model"  # in place of a folder: a made-up GPU instead of a record
LOG = ".workload.json"  # how the programs' file of a benchmark's own database ends


class Timing(Protocol):
    """What a simulated machine is made of."""

    def seconds(self, mod: Any) -> float:
        """Seconds of a scheduled module; raises Refused where it fails."""


def timing(source: str, mod: Any, target: Any) -> Timing:
    """The made-up GPU of the target for "model", else what a folder's databases recorded of `mod`."""
    return RooflineGpu(target) if source == MODEL else Recorded(Path(source), mod, target)


def machine(told: Timing) -> tuple[Any, Any]:
    """A builder and a runner for ``ms.tune_tir`` that know seconds from `told`."""
    return _Builder(told), _Runner()


@derived_object
class _Builder(ms.builder.PyBuilder):
    """Writes a program's seconds where a compiled library would be."""

    def __init__(self, told: Timing) -> None:
        super().__init__()
        self.told = told

    def build(self, build_inputs: list[Any]) -> list[Any]:
        return [self._one(entry) for entry in build_inputs]

    def _one(self, entry: Any) -> Any:
        try:
            seconds = self.told.seconds(entry.mod)
        except Refused as why:
            return ms.builder.BuilderResult(None, str(why))
        path = Path(tempfile.mkdtemp()) / "simulated.json"  # the search removes it, and its folder
        path.write_text(json.dumps(seconds))
        return ms.builder.BuilderResult(str(path), None)


@derived_object
class _Runner(ms.runner.PyRunner):
    """Reads the seconds back."""

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        return [_Known(json.loads(Path(str(x.artifact_path)).read_text())) for x in runner_inputs]


@derived_object
class _Known(ms.runner.PyRunnerFuture):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return ms.runner.RunnerResult([self.seconds], None)


class Recorded:
    """Seconds of one program's schedules out of databases.

    Parameters
    ----------
    folder : Path
        Searched with all that is in it for MetaSchedule's databases and for the benchmark's own logs.
    mod : tvm.IRModule
        The program before scheduling, normalized or not.
    target : tvm.target.Target

    Raises
    ------
    WmschedError
        Nothing of this program was recorded with a time.
    """

    def __init__(self, folder: Path, mod: Any, target: Any) -> None:
        self.context = ms.TuneContext(mod, target=target)
        self.near = ms.feature_extractor.PerStoreFeature()
        self.known: dict[str, float] = {}
        self.skipped = 0  # records that TVM does not replay
        rows: list[np.ndarray] = []
        times: list[float] = []
        for steps, seconds in _records(folder, mod):
            try:
                schedule = Schedule(self.context.mod, error_render_level="none")
                Trace.apply_json_to_schedule(trace_of(steps), schedule)
                told = _text(schedule.mod)
                features = self._features(schedule.mod) if np.isfinite(seconds) else None
            except (RuntimeError, ValueError, TypeError, IndexError, KeyError):  # of another TVM
                self.skipped += 1
                continue
            self.known[told] = seconds
            if features is not None:
                rows.append(features)
                times.append(seconds)
        if not times:
            raise WmschedError(f"{folder} has no record with a time of this program")
        self.times = np.array(times)
        self.scale = np.maximum(np.std(rows, axis=0), 1e-3)
        self.rows = np.array(rows) / self.scale

    def seconds(self, mod: Any) -> float:
        """What was measured, or what the nearest recorded program took; Refused if it failed then."""
        told = self.known.get(_text(mod))
        if told is None:
            distance = np.square(self.rows - self._features(mod) / self.scale).sum(axis=1)
            return float(self.times[int(np.argmin(distance))])
        if not np.isfinite(told):
            raise Refused("it failed when it was recorded")
        return told

    def _features(self, mod: Any) -> np.ndarray:
        """Of a whole program, out of TVM's of each of its stores: the sum and the largest of each."""
        candidate = ms.MeasureCandidate(Schedule(mod), [])
        (found,) = self.near.extract_from(self.context, [candidate])
        stores = found.numpy()
        return np.concatenate([stores.sum(axis=0), stores.max(axis=0)])


def _records(folder: Path, mod: Any) -> Iterator[tuple[Any, float]]:
    """(steps, mean seconds or NaN) of each good record of a program."""
    from data_builder.read.databases import RECORDS, WORKLOADS, parse_line

    pairs = [(path.with_name(WORKLOADS), path) for path in sorted(folder.rglob(RECORDS))]
    logs = sorted(folder.rglob(f"*{LOG}"))
    pairs += [(path, path.with_name(path.name.removesuffix(LOG) + ".json")) for path in logs]
    for programs, records in pairs:
        if not programs.is_file() or not records.is_file():
            continue
        lines = _same(programs, mod)
        for line in records.read_bytes().splitlines():
            try:
                record = parse_line(line)
            except LogError:
                continue
            if record.workload in lines:
                yield record.steps, record.measurement.seconds


def _same(path: Path, mod: Any) -> set[int]:
    """Numbers of a file's lines that hold the program."""
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    wanted, found = _normalize_mod(mod), set()
    for number, line in enumerate(path.read_bytes().splitlines()):
        try:
            row = orjson.loads(line)
            if tvm_ffi.structural_equal(ms.database.Workload.from_json(row).mod, wanted):
                found.add(number)
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError):  # cut short, or of another TVM
            continue
    return found


def _text(mod: Any) -> str:
    """A program's identity; a database writes true as 1."""
    return str(mod.script()).replace(": True}", ": 1}")
