"""TenSet's offline training: the stock XGBModel fitted to the same logs as ours, then frozen.

Fitting again after each round, as the stock model does, would train from this run's measurements alone and
forget the logs (XGBoost cannot continue from them), so the model stays as it was fitted; ours is frozen
too.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.methods import Settings
from benchmarks.methods.step_counts import StepBooster

NAME = "tenset"

logger = logging.getLogger("benchmarks")


def cost_model(settings: Settings) -> Any:
    """The fitted XGBModel; fits it first if the cache has none for these logs (minutes, once)."""
    from tvm import auto_scheduler

    class Frozen(auto_scheduler.XGBModel):
        """XGBModel that does not learn from the run."""

        def update(self, inputs: Any, results: Any) -> None:
            pass

    model = Frozen()
    model.load(str(fitted(settings)))
    return model


def fitted(settings: Settings) -> Path:
    """The file of the stock model fitted to `settings.training`, made if need be."""
    files = records.log_files(settings.training)
    if not files or not settings.workloads:
        raise ValueError("tenset needs training logs and their workloads: give --training and --workloads")
    made_of = [*files, *map(Path, settings.workloads)]
    path = settings.cache_path / f"tenset-{records.digest(made_of, settings.exclude)}.json"
    if not path.exists():
        fit(files, settings, path)
    return path


def fit(files: list[Path], settings: Settings, path: Path) -> None:
    """Train the stock XGBModel, its features, objective and stopping rule included, and save it as `path`."""
    from tvm import auto_scheduler

    inputs, results = [], []
    for inp, res in measured_pairs(files, settings):
        inputs.append(inp)
        results.append(res)
    if not inputs:
        raise ValueError(
            f"none of the {len(files)} training logs has a record of a workload that may be used"
        )
    logger.info("tenset: fitting the stock XGBModel to %d records", len(inputs))
    model = auto_scheduler.XGBModel()
    model.update(inputs, results)
    partial = path.with_name(f"partial-{os.getpid()}-{path.name}")  # XGBoost tells the format from the ending
    model.save(str(partial))
    partial.replace(path)


def measured_pairs(files: list[Path], settings: Settings) -> Iterator[tuple[Any, Any]]:
    """TVM's (MeasureInput, MeasureResult) of every usable record, their workloads registered.

    Left out: the workloads in `settings.exclude`, those that no workloads file describes, and bad lines.
    """
    from tvm.auto_scheduler.measure_record import load_record_from_string

    from wmsched.ansor.compute_dag import task_from_row
    from wmsched.base.errors import LogError
    from wmsched.schedules.steps import parse_record
    from wmsched.schedules.workload_file import by_key, load_rows

    rows = by_key(row for path in settings.workloads for row in load_rows(path))
    registered: set[str] = set()
    left_out: dict[str, int] = {"excluded": 0, "unknown workload": 0, "bad line": 0}
    for file in files:
        for place, line in records.lines(file):
            try:
                key = parse_record(line, place=place).workload_key
            except LogError:
                left_out["bad line"] += 1
                continue
            if key in settings.exclude or key not in rows:
                left_out["excluded" if key in settings.exclude else "unknown workload"] += 1
                continue
            if key not in registered:
                task_from_row({**rows[key], "workload_key": key}, target=rows[key]["target"])
                registered.add(key)
            yield load_record_from_string(line.decode())
    logger.info("tenset: %d workloads; left out: %s", len(registered), left_out)


class Pretrained:
    """In simulation: the plain model fitted to the other workloads' records."""

    def __init__(self, booster: StepBooster) -> None:
        self._booster = booster
        self.score = booster.predict

    def observe(self, steps: Any, seconds: Any) -> None:
        pass


def scorer(settings: Settings, workload: Any) -> Pretrained:
    """The same in simulation: fitted to the training logs without the workload in question."""
    return Pretrained(_plain(settings.training, settings.exclude, workload.key))


@functools.cache
def _plain(training: tuple[str, ...], exclude: tuple[str, ...], left_out: str) -> StepBooster:
    usable = [
        (group.steps, group.seconds)
        for group in _groups(training)
        if group.key not in exclude and group.key != left_out and (group.seconds > 0).any()
    ]
    if not usable:
        raise ValueError(
            "tenset needs training logs of workloads other than the one searched: give --training"
        )
    return StepBooster.fit(usable)


@functools.cache
def _groups(training: tuple[str, ...]) -> list[records.Measured]:
    return records.apart(training)
