"""The benchmark's runs of a whole TaskScheduler: upstream's and ours, each with its own defaults."""

import json
from pathlib import Path

import pytest

from benchmarks.tune import tuning
from wmsched import zoo

BUNDLE = str(Path(zoo.__file__).parents[1] / "bundles" / "x86-avx512")


@pytest.fixture
def spec(tmp_path):
    (row,) = zoo.find("gpt2/8")
    settings = {"bundle": BUNDLE, "seed": 0, "round_size": 4}
    common = {"row": row, "target": "", "settings": settings, "budget": 4, "round_size": 4, "seed": 0}
    return common | {"log": str(tmp_path / "log.json")}


@pytest.mark.parametrize(
    ("method", "places", "costs", "kept"),
    [
        pytest.param("ansor-script", 1, 10, False, marks=pytest.mark.slow),
        ("wmsched-script", 3, 30, True),
        ("wmsched-online-script", 3, 30, True),
    ],
)
def test_a_script_gets_the_defaults_of_its_task_scheduler(spec, method, places, costs, kept):
    found = tuning.tune(spec | {"method": method})
    assert found["status"] == "ok" and found["trials"] == 4
    assert (found["places"], found["kept_workers"]) == (places, kept)
    records = [json.loads(line) for line in Path(spec["log"]).read_text().splitlines()]
    assert [len(record["r"][0]) for record in records] == [costs] * 4  # repeat=10 on each set of buffers
    assert json.loads(found["best_record"])["i"] in [record["i"] for record in records]
    assert found["best_seconds"] == pytest.approx(found["curve"][-1][2])
    assert (found["model_share"] is None) == (method == "ansor-script")


def test_a_run_for_another_target_than_the_files_is_an_error(spec):
    found = tuning.tune(spec | {"method": "random", "before": "llvm -mcpu=core2"})
    assert found["status"] == "error" and '"llvm -mcpu=core2"' in found["error"]
    assert not Path(spec["log"]).exists()
