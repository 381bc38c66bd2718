"""What lowering does for a run's best schedule, measured: one line, one row, of a layer norm's mean."""

from pathlib import Path

import pytest
from checkout import RESULTS

from benchmarks.plan import read
from benchmarks.studies.lowering import main
from wmsched.base.errors import WmschedError

RUNS = RESULTS / "emr-script.jsonl"


def test_a_schedule_is_timed_with_and_without(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out.jsonl"
    assert main([str(RUNS), "--tasks", "gpt2/8", "--rounds", "3", "--out", str(out)]) == 0
    (line,) = read(out)
    assert line["kind"] == "lowering" and line["method"] == "wmsched-script"
    assert line["gain"] == pytest.approx(line["plain"]["median"] / line["lowered"]["median"])
    assert len(line["lowered"]["seconds"]) == 3 and 1e-7 < line["lowered"]["median"] < 1e-3
    assert "| gpt2/8 |" in capsys.readouterr().out
    with pytest.raises(WmschedError, match="no finished run of wmsched-script on resnet50/99"):
        main([str(RUNS), "--tasks", "resnet50/99", "--out", str(out)])
