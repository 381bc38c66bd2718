"""What lies near a search's choice, measured: a run's best schedule of a layer norm and a few variations."""

import json
import math
from pathlib import Path

import pytest
from checkout import RESULTS

from benchmarks.plan import read
from benchmarks.studies.neighbours import main

RUNS = RESULTS / "emr-script.jsonl"


def test_a_run_s_choice_and_its_neighbours_are_measured(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out.jsonl"
    options = ["--tasks", "gpt2/8", "--sampled", "60", "--count", "4", "--out", str(out)]
    assert main([str(RUNS), *options]) == 0
    (line,) = read(out)
    assert 4 < line["sampled"] <= 61 and len(line["own"]) == 2
    places = [place for place, _ in line["measured"]]
    assert len({*places, line["own_place"]}) == 5 and max(places) < line["sampled"]
    seconds = [found for _, found in line["measured"]]
    assert all(math.isfinite(one) and one < 1e-2 for one in [*line["own"], *seconds])
    assert line["gain"] * min(seconds) * 2 == pytest.approx(sum(line["own"]))
    assert json.loads(out.read_text())["kind"] == "neighbours"
    assert "| gpt2/8 |" in capsys.readouterr().out
