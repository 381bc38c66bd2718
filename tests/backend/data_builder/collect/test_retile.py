"""`wmsched-data vary`: other register tiles of a log's fastest schedules, as TVM replays them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pretending import QUICK, Pretending, Watch, make_row
from remeasuring import Uneven, collected, lines

from data_builder.collect import remeasure as again
from data_builder.collect.remeasure import RemeasureOptions
from data_builder.collect.retile import VaryOptions, vary
from wmsched.base.errors import DatasetError
from wmsched.schedules.steps import parse_record

OPTIONS = VaryOptions(each=5, best=4)
TIMING = RemeasureOptions(batch=3, measure=QUICK)


class Replaying(Uneven):
    """As `Uneven`; a schedule that does not replay to a program raises."""

    def measure(self, task, states):
        for state in states:
            task.compute_dag.apply_steps_from_state(task.compute_dag.infer_bound_from_state(state))
        yield from super().measure(task, states)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return collected(tmp_path / "old", [make_row(64)], 8, Pretending, monkeypatch)


def test_variants_replay_and_those_that_fail_are_recorded_so(old: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(again, "Measurer", Replaying)
    counts = vary(old, tmp_path / "new", OPTIONS, TIMING, Watch())
    assert counts == {"tasks": 1, "records": 5, "measured": 5, "failed": 1, "unfinished": 0}
    records = [parse_record(line) for line in lines(tmp_path / "new")]
    assert [record.measurement.error_no for record in records] == [0, 0, 4, 0, 0]
    known = {str(parse_record(line).steps) for line in lines(old)}
    assert len({str(record.steps) for record in records} - known) == 5
    # the same command has nothing left to do; another seed's variants are others
    assert vary(old, tmp_path / "new", OPTIONS, TIMING, Watch())["measured"] == 0
    with pytest.raises(DatasetError, match="choose another --out"):
        vary(old, tmp_path / "new", VaryOptions(each=5, best=4, seed=1), TIMING, Watch())
