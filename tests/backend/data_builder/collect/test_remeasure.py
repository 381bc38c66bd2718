"""`wmsched-data remeasure`: new times for the fastest records of a log, the others as they were."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from pretending import QUICK, Pretending, Refusing, Watch, make_row
from remeasuring import Uneven, collected, lines
from small_tasks import Quiet

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.collect import remeasure as again
from data_builder.collect.remeasure import RemeasureOptions, fastest, remeasure
from data_builder.read.workloads import every_row, read_rows, write_rows
from wmsched.base.errors import DatasetError, LogError
from wmsched.learn.data.dataset import Dataset
from wmsched.schedules.steps import parse_record

OPTIONS = RemeasureOptions(share=0.5, batch=2, measure=QUICK)


class Killed(Exception):
    """In place of a kill."""


def milliseconds(folder: Path) -> list[float]:
    seconds = [parse_record(line).measurement.seconds for line in lines(folder)]
    return [round(1e3 * second, 3) for second in seconds]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six records: 10, 9, failed, 7, 6 and 5 ms."""
    return collected(tmp_path / "old", [make_row(16)], 6, Uneven, monkeypatch)


@pytest.fixture
def pretending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "Measurer", Pretending)


def test_the_fastest_are_those_with_a_time() -> None:
    nan = float("nan")
    assert fastest([3.0, nan, 1.0, 2.0, 4.0], 0.5) == {2, 3}
    assert fastest([3.0, nan], 0.01) == {0}
    assert fastest([nan, nan], 1.0) == set()


def test_the_fastest_have_new_times_and_the_others_theirs(old: Path, tmp_path: Path, pretending) -> None:
    counts = remeasure(old, tmp_path / "new", OPTIONS, Watch())
    assert counts == {"tasks": 1, "records": 6, "measured": 2, "failed": 0, "unfinished": 0}
    assert milliseconds(tmp_path / "new")[:2] == [10.0, 9.0]
    assert milliseconds(tmp_path / "new")[3:] == [7.0, 1.0, 1.0]
    before, after = lines(old), lines(tmp_path / "new")
    assert after[:4] == before[:4]
    assert [parse_record(line).steps for line in after] == [parse_record(line).steps for line in before]


def test_gzipped_logs_are_read_and_plain_ones_written(old: Path, tmp_path: Path, pretending) -> None:
    before = lines(old)
    (log,) = (old / "measure_records").glob("*.json")
    packed = log.with_name(f"{log.name}.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    rows = [{**row, "log": packed.name} for row in read_rows(old / "workloads.json.gz").values()]
    write_rows(old / "workloads.json.gz", rows)
    remeasure(old, tmp_path / "new", OPTIONS, Watch())
    assert lines(tmp_path / "new")[:4] == before[:4]
    assert [row["log"] for row in read_rows(tmp_path / "new" / "workloads.json.gz").values()] == [log.name]


def test_each_log_has_its_row_whatever_is_packed_or_listed_besides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretending
) -> None:
    new = tmp_path / "new"
    # as two of the benchmark's tasks are one workload
    old = collected(tmp_path / "old", [make_row(16), make_row(16, id=17)], 6, Uneven, monkeypatch)
    first, second = sorted((old / "measure_records").glob("*.json"))
    packed = first.with_name(f"{first.name}.gz")
    packed.write_bytes(gzip.compress(first.read_bytes()))  # by hand: its row says nothing of it
    rows = every_row(old / "workloads.json.gz")
    nameless = {name: value for name, value in rows[0].items() if name != "log"}
    write_rows(old / "workloads.json.gz", [nameless, {**rows[0], "log": None}, *rows])
    with pytest.raises(DatasetError, match=rf"has {first.name} and {first.name}\.gz: move"):
        remeasure(old, new, OPTIONS, Watch())
    first.unlink()
    counts = remeasure(old, new, OPTIONS, Watch())
    assert counts == {"tasks": 2, "records": 12, "measured": 4, "failed": 0, "unfinished": 0}
    assert [row["log"] for row in every_row(new / "workloads.json.gz")] == [first.name, second.name]
    assert [row["id"] for row in every_row(new / "workloads.json.gz")] == [16, 17]
    (old / "measure_records" / "9999_strange.json").touch()
    with pytest.raises(DatasetError, match=r"no workload for the log 9999_strange\.json"):
        remeasure(old, new, OPTIONS, Watch())


def test_old_records_keep_their_marks_and_new_ones_have_none(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Now(Pretending):
        def measure(self, task, states):
            from tvm import auto_scheduler

            for state in states:
                result = auto_scheduler.measure.MeasureResult([1e-3], 0, "", 0.1, time.time())
                yield auto_scheduler.MeasureInput(task, state), result

    monkeypatch.setattr(again, "Measurer", Now)
    checks = [(0.1, 1e-3), (0.2, 1e-3), (0.3, 1e-3), (1.5, 1.0), (time.time() - 5, 1.0)]  # the old ones: 1
    text = "".join(json.dumps({"t": t, "seconds": seconds}) + "\n" for t, seconds in checks)
    (old / "noise.ndjson").write_text(text)
    remeasure(old, tmp_path / "new", OPTIONS, Watch())
    assert (tmp_path / "new" / "noise.ndjson").read_text().startswith(text)
    build([str(tmp_path / "new" / "measure_records")], tmp_path / "ds", BuildOptions(jobs=1), Quiet())
    dataset = Dataset(tmp_path / "ds")
    assert dataset.disturbed(dataset.workload_ids[0]) == [True] * 4 + [None] * 2


def test_what_fails_now_keeps_the_time_it_had(old: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(again, "Measurer", Refusing)
    counts = remeasure(old, tmp_path / "new", OPTIONS, Watch())
    assert (counts["measured"], counts["failed"]) == (2, 2)
    assert lines(tmp_path / "new") == lines(old)


def test_a_killed_run_goes_on(old: Path, tmp_path: Path, monkeypatch) -> None:
    class Mortal(Pretending):
        def measure(self, task, states):
            for number, found in enumerate(super().measure(task, states)):
                if number:
                    raise Killed
                yield found

    monkeypatch.setattr(again, "Measurer", Mortal)
    with pytest.raises(Killed):
        remeasure(old, tmp_path / "new", OPTIONS, Watch())
    assert len(lines(tmp_path / "new")) == 5
    monkeypatch.setattr(again, "Measurer", Pretending)
    counts = remeasure(old, tmp_path / "new", OPTIONS, Watch())
    assert (counts["records"], counts["measured"]) == (6, 1)
    assert milliseconds(tmp_path / "new")[3:] == [7.0, 1.0, 1.0]
    assert remeasure(old, tmp_path / "new", OPTIONS, Watch())["measured"] == 0


def test_what_cannot_be_is_said(old: Path, tmp_path: Path, pretending) -> None:
    with pytest.raises(DatasetError, match=r"choose another --out"):
        remeasure(old, old, OPTIONS, Watch())
    with pytest.raises(DatasetError, match=r"a share of 0\.0"):
        remeasure(old, tmp_path / "new", RemeasureOptions(share=0.0), Watch())
    with pytest.raises(LogError, match=r"its records are of the target"):
        remeasure(old, tmp_path / "new", RemeasureOptions(target="llvm -num-cores=77"), Watch())
    new = tmp_path / "new" / "measure_records"
    new.mkdir(parents=True, exist_ok=True)
    (log,) = (old / "measure_records").glob("*.json")
    (new / log.name).write_bytes(b"\n".join(reversed(lines(old))) + b"\n")
    with pytest.raises(DatasetError, match=r"does not begin as"):
        remeasure(old, tmp_path / "new", OPTIONS, Watch())
    log.unlink()
    with pytest.raises(DatasetError, match=r"has no logs"):
        remeasure(old, tmp_path / "new", OPTIONS, Watch())
