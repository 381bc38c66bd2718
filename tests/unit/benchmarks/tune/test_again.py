"""Going on with a results file: of this processor and target alone. Methods that are whole scripts."""

import json

import pytest
from result_lines import again, run_line

from benchmarks import machine, methods, run
from benchmarks.outcomes.outcomes import Outcomes, Setting
from benchmarks.report import report
from benchmarks.tune import child
from benchmarks.tune.remeasure import interleave


@pytest.fixture
def asked(monkeypatch):
    """The specs that children are given; each answers with an error, so that nothing is measured again."""
    specs = []

    def call(module, spec, *, timeout, output, steady):
        specs.append(spec)
        return {"status": "error", "error": "enough", "problems": {}}

    monkeypatch.setattr(child, "call", call)
    return specs


def written(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["--tasks", "softmax", "--methods", "random,meta-random", "--out", str(path)]


def test_another_machines_lines_are_not_gone_on_with(tmp_path, asked, capsys):
    command = written(tmp_path / "r.jsonl", run_line("t", "ansor", 1.0, cpu="an abacus"))
    before = (tmp_path / "r.jsonl").read_bytes()
    assert run.main(command) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "runs of another processor, an abacus" in told and "give another --out" in told
    assert not asked and (tmp_path / "r.jsonl").read_bytes() == before


def test_lines_of_other_threads_are_not_gone_on_with(tmp_path, asked, capsys, monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    line = run_line("t", "ansor", 1.0, cpu=machine.describe()["cpu"], threads=1)
    assert run.main(written(tmp_path / "r.jsonl", line)) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "has runs on 1 threads, and programs would run on 2 now: set TVM_NUM_THREADS=1" in told
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    assert run.main(written(tmp_path / "r.jsonl", line)) == 1 and len(asked) == 2


@pytest.mark.parametrize(
    ("before", "now", "refused"),
    [
        ({"places": 1, "paired": False}, [], True),
        ({"places": 1, "paired": False}, ["--places", "1"], False),
        ({"places": 3, "paired": True}, [], False),
        ({"places": 3, "paired": True}, ["--alone"], True),
        ({"places": 3}, [], True),  # from before candidates were timed beside another
        ({"places": 1, "paired": False, "target": "cuda -arch=sm_90"}, [], False),
        ({"places": 1, "paired": False, "method": "ansor-script"}, [], False),
        ({}, [], False),
    ],
)
def test_searches_that_timed_otherwise_are_not_gone_on_with(tmp_path, asked, capsys, before, now, refused):
    line = run_line("t", "ansor", 1.0, cpu=machine.describe()["cpu"]) | before
    status = run.main([*written(tmp_path / "r.jsonl", line), *now])
    assert (status == 2) == refused == (not asked)
    assert ("say the same, or give another --out" in " ".join(capsys.readouterr().err.split())) == refused


def test_each_line_names_the_commit_of_its_time(monkeypatch):
    commits = iter(["a", "b"])
    monkeypatch.setattr(machine, "commit", lambda: next(commits))
    assert [machine.describe()["git"] for _ in range(2)] == ["a", "b"]


def test_a_child_is_told_what_the_earlier_runs_of_its_search_were_compiled_for(tmp_path, asked):
    here = machine.describe()["cpu"]
    lines = [
        run_line("t", "ansor", 1.0, cpu=here, target="llvm -mcpu=a"),
        run_line("t", "meta-xgb", 1.0, cpu=here, target="llvm -mcpu=b"),
    ]
    assert run.main(written(tmp_path / "r.jsonl", *lines)) == 1
    assert [(spec["method"], spec["before"]) for spec in asked] == [
        ("random", "llvm -mcpu=a"),
        ("meta-random", "llvm -mcpu=b"),
    ]


def test_a_new_file_has_no_target_before(tmp_path, asked):
    run.main(written(tmp_path / "r.jsonl"))
    assert [spec["before"] for spec in asked] == ["", ""]


def test_schedules_are_measured_again_as_their_search_compiled_them(tmp_path, asked):
    here = machine.describe()["cpu"]
    lines = [
        run_line("gpt2/8", "ansor-script", 1.0, cpu=here, fingerprint=None),
        run_line("gpt2/8", "random", 1.0, cpu=here, fingerprint=None, vector_math=True),
    ]
    command = written(tmp_path / "r.jsonl", *lines)
    command[1:4] = ["gpt2/8", "--methods", "random"]
    assert run.main([*command, "--budgets", "16"]) == 0
    (spec,) = asked
    assert (len(spec["records"]), spec["vector_math"]) == (2, [False, True])


def test_schedules_are_measured_anew_where_that_is_asked_for(tmp_path, asked):
    line = run_line("gpt2/8", "random", 1.0, cpu=machine.describe()["cpu"], fingerprint=None)
    command = written(tmp_path / "r.jsonl", line, again("gpt2/8", ("random", 1.0, 1.5)))
    command[1:4] = ["gpt2/8", "--methods", "random"]
    assert run.main([*command, "--budgets", "16"]) == 0 and not asked
    assert run.main([*command, "--budgets", "16", "--again", "--rounds", "36"]) == 0
    (spec,) = asked  # of the first of four processes, whose answer ends it here
    assert (spec["records"], spec["rounds"]) == ([line["best_record"]], 9)


def test_scripts_are_set_against_scripts_only():
    names = ("ansor", "wmsched@x", "wmsched-script", "meta-xgb", "meta-xgb-script", "no-such")
    kinds = [methods.kin(name) for name in names]
    assert kinds == ["", "", methods.SCRIPT, methods.META, methods.META + methods.SCRIPT, ""]
    lines = [
        run_line("t", name, seconds, budget=64, type="softmax")
        for name, seconds in (
            ("ansor", 4.0),
            ("wmsched", 3.0),
            ("ansor-script", 2.0),
            ("wmsched-script", 1.0),
        )
    ]
    data = Outcomes(lines)
    assert data.pairs() == [("wmsched", "ansor"), ("wmsched-script", "ansor-script")]
    text = report.markdown(lines)
    assert "| wmsched-script over ansor-script, 64 trials | **2.00**" in text
    assert "wmsched-script over ansor," not in text and "in vectors" not in text
    lines[-1]["vector_math"] = True
    assert "- exp, tanh, erf and log in vectors, of: wmsched-script (1 runs)" in report.markdown(lines)
    assert "| ours-64 over ansor-64 | wmsched-script" not in text
    setting = Setting(64, 64)
    assert data.ratios("ansor-script", setting, "wmsched-script", setting) == {"t": [2.0]}
    assert [data.best_known("t", method) for method in ("ansor", "wmsched-script")] == [3.0, 1.0]


def test_a_script_cannot_be_simulated(tmp_path, capsys):
    command = ["--simulate", "x.json", "--methods", "ansor-script", "--out", str(tmp_path / "r.jsonl")]
    assert run.main(command) == 2
    assert "ansor-script is a whole script" in " ".join(capsys.readouterr().err.split())


def test_a_program_that_fails_when_it_runs_leaves_the_others_measured():
    def build(record):
        calls = iter([1.0, 3.0, 2.0] if record == "good" else [1.0])
        return lambda: next(calls, None) or broken()

    def broken():
        raise RuntimeError("an illegal access")

    good, bad, again = interleave(["good", "bad", "good"], build, 3)
    assert good == again and good["seconds"] == [1.0, 3.0, 2.0] and good["median"] == 2.0
    assert bad == {"error": "RuntimeError: an illegal access"}
