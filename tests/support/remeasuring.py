"""Logs to be measured again, by a device whose times differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from pretending import QUICK, Pretending, Watch

from data_builder.collect import collect as collecting
from data_builder.collect.collect import CollectOptions, collect


class Uneven(Pretending):
    """Times in milliseconds that fall with each program; the third fails."""

    def measure(self, task, states):
        from tvm import auto_scheduler

        for number, state in enumerate(states):
            failed = number == 2
            costs, error = ([1e10], 4) if failed else ([(10 - number) * 1e-3], 0)
            result = auto_scheduler.measure.MeasureResult(costs, error, "", 0.1, 1.0)
            yield auto_scheduler.MeasureInput(task, state), result


def lines(folder: Path) -> list[bytes]:
    (log,) = (folder / "measure_records").glob("*.json")
    return log.read_bytes().splitlines()


def collected(folder: Path, rows, trials: int, measurer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of so many random records of each row, in one batch, with the measurer's times."""
    monkeypatch.setattr(collecting, "Measurer", measurer)
    collect(rows, folder, CollectOptions(trials=trials, batch=trials, mix=(1, 0), measure=QUICK), Watch())
    return folder
