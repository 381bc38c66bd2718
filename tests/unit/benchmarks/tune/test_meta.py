"""MetaSchedule's methods in the runner: children and second measurement of their own, and what is refused."""

import pytest

from benchmarks import run
from benchmarks.plan import read
from benchmarks.report import report
from benchmarks.tune import again, child


@pytest.fixture
def called(monkeypatch):
    """Children that answer at once; the modules asked for, with what they were asked."""
    calls = []

    def call(module, spec, *, timeout, output, steady):
        assert steady  # both time programs
        calls.append((module, spec))
        if "records" in spec:
            entries = [{"seconds": [2e-3], "median": 2e-3, "spread": 0.0} for _ in spec["records"]]
            return {"status": "ok", "rounds": spec["rounds"], "entries": entries}
        found = {"trials": spec["budget"], "failed": 0, "search_seconds": 9.0, "model_share": 0.5}
        found |= {"predict_seconds": 4.0, "candidates": 100, "curve": [[1, 1.0, 2e-3], [16, 9.0, 1e-3]]}
        return {"status": "ok", "best_seconds": 1e-3, "best_record": spec["method"], "problems": {}, **found}

    monkeypatch.setattr(child, "call", call)
    return calls


def test_the_two_searches_have_children_of_their_own(tmp_path, called, capsys):
    out = tmp_path / "r.jsonl"
    command = ["--tasks", "softmax", "--methods", "ansor,random,meta-xgb,meta-random", "--out", str(out)]
    assert run.main(command) == 0
    assert [module for module, _ in called] == [
        "benchmarks.tune.tuning",
        "benchmarks.tune.tuning",
        "benchmarks.tune.meta.tuning",
        "benchmarks.tune.meta.tuning",
        *["benchmarks.tune.remeasure"] * 4,
        *["benchmarks.tune.meta.remeasure"] * 4,
    ]
    assert called[4][1]["records"] == ["ansor", "random"]
    assert called[-1][1]["records"] == ["meta-random", "meta-xgb"]
    assert called[-1][1]["row"]["type"] == "softmax"
    lines = list(read(out))
    assert [line["kind"] for line in lines] == ["run"] * 4 + ["remeasure"] * 2
    text = report.markdown(lines)
    assert "| meta-xgb | 16 trials | 1 | 9.0 | 50.0 % | 25 | 0.0 % |" in text
    assert run.main(command) == 0 and len(called) == 12  # nothing is done twice


def test_the_second_measurement_is_spread_over_processes(tmp_path, monkeypatch):
    asked = []

    def call(module, spec, *, timeout, output, steady):
        asked.append((module, spec["first"], spec["rounds"], steady))
        times = [spec["first"] + k + 1.0 for k in range(spec["rounds"])]
        wrong = {"error": "wrong"} if spec["first"] == 0 else {"seconds": times, "median": 0.0, "spread": 0.0}
        entries = [{"seconds": times, "median": 0.0, "spread": 0.0}, wrong]
        return {"status": "ok", "rounds": spec["rounds"], "entries": entries}

    monkeypatch.setattr(child, "call", call)
    options = {"processes": 4, "timeout": 9.0, "output": tmp_path / "out"}
    found = again.measure("m", {"rounds": 5, "records": ["a", "b"]}, **options)
    assert asked == [("m", 0, 1, True), ("m", 1, 1, True), ("m", 2, 1, True), ("m", 3, 2, True)]
    assert found["rounds"] == 5 and found["processes"] == 4
    fine, wrong = found["entries"]
    assert fine["seconds"] == [1.0, 2.0, 3.0, 4.0, 5.0] and fine["median"] == 3.0 and fine["spread"] > 0
    assert wrong == {"error": "wrong"}  # looked at in the first process, and believed
    monkeypatch.setattr(child, "call", lambda *_, **__: {"status": "error", "error": "crashed"})
    assert again.measure("m", {"rounds": 5}, **options) == {"status": "error", "error": "crashed"}
    assert run.main(["--tasks", "softmax", "--processes", "0", "--out", str(tmp_path / "r.jsonl")]) == 2


@pytest.mark.parametrize(
    ("tasks", "says"), [("gpt2/0", "tunes representatives only, not gpt2/0"), ("softmax", "give --bundle")]
)
def test_what_it_cannot_tune_is_refused(tmp_path, called, capsys, tasks, says):
    method = "meta-wmsched" if "bundle" in says else "meta-xgb"
    assert run.main(["--tasks", tasks, "--methods", method, "--out", str(tmp_path / "r.jsonl")]) == 2
    assert says in " ".join(capsys.readouterr().err.split()) and not called
