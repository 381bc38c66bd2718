"""How much a search's timings of one program vary: which schedules are timed, and the figure."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.studies.timing_noise import deviation, fastest, main
from wmsched.base.errors import WmschedError


def line(task: str, seconds: float, record: str, *, status: str = "ok", seed: int = 0) -> str:
    fields = {"kind": "run", "task": task, "method": "wmsched", "budget": 16, "round_size": 16, "seed": seed}
    return json.dumps(fields | {"status": status, "best_seconds": seconds, "best_record": record})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    failed = json.loads(line("b", 0.0, "failed", status="error"))
    del failed["best_seconds"]
    runs = [line("a", 2.0, "slow"), line("a", 1.0, "fast", seed=1), line("b", 3.0, "only")]
    path.write_text("\n".join([*runs, json.dumps(failed)]) + "\n")
    return path


def test_the_fastest_of_each_task_is_timed_in_the_order_asked_for(results: Path) -> None:
    assert list(fastest(results, ["b", "a"]).items()) == [("b", "only"), ("a", "fast")]


def test_a_task_without_a_run_is_named(results: Path) -> None:
    with pytest.raises(WmschedError, match=r"no finished run of c: name others with --tasks"):
        fastest(results, ["a", "c"])


def test_the_deviation_is_that_of_the_logarithms() -> None:
    assert deviation([1.0, 1.0, 1.0]) == 0.0
    assert deviation([2.0, 2.0 * math.e]) == pytest.approx(math.sqrt(0.5))


def test_one_timing_does_not_vary(results: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main([str(results), "--rounds", "1", "--out", str(tmp_path / "out.jsonl")])
    assert "--rounds 1: one timing does not vary" in capsys.readouterr().err
