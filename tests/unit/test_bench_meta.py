"""MetaSchedule's methods in the runner: children and second measurement of their own, and what is refused."""

import pytest

from benchmarks import child, report, run
from benchmarks.plan import read


@pytest.fixture
def called(monkeypatch):
    """Children that answer at once; the modules asked for, with what they were asked."""
    calls = []

    def call(module, spec, *, timeout, output, steady):
        assert steady  # both time programs
        calls.append((module, spec))
        if "records" in spec:
            entries = [{"seconds": [2e-3], "median": 2e-3, "spread": 0.0} for _ in spec["records"]]
            return {"status": "ok", "rounds": 1, "entries": entries}
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
        "benchmarks.tuning",
        "benchmarks.tuning",
        "benchmarks.meta.tuning",
        "benchmarks.meta.tuning",
        "benchmarks.remeasure",
        "benchmarks.meta.remeasure",
    ]
    assert called[-2][1]["records"] == ["ansor", "random"]
    assert called[-1][1]["records"] == ["meta-random", "meta-xgb"]
    assert called[-1][1]["row"]["type"] == "softmax"
    lines = list(read(out))
    assert [line["kind"] for line in lines] == ["run"] * 4 + ["remeasure"] * 2
    text = report.markdown(lines)
    assert "| meta-xgb | 16 trials | 1 | 9.0 | 50.0 % | 25 | 0.0 % |" in text
    assert run.main(command) == 0 and len(called) == 6  # nothing is done twice


@pytest.mark.parametrize(
    ("tasks", "says"), [("gpt2/0", "tunes representatives only, not gpt2/0"), ("softmax", "give --bundle")]
)
def test_what_it_cannot_tune_is_refused(tmp_path, called, capsys, tasks, says):
    method = "meta-wmsched" if "bundle" in says else "meta-xgb"
    assert run.main(["--tasks", tasks, "--methods", method, "--out", str(tmp_path / "r.jsonl")]) == 2
    assert says in " ".join(capsys.readouterr().err.split()) and not called
