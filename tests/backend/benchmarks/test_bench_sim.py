"""The benchmark runner from command line to tables, on made-up recorded measurements: no TVM, no timing."""

import functools
import gzip
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import leak, run
from benchmarks.offline import offline
from benchmarks.plan import read
from benchmarks.rankers.tlp import fit
from benchmarks.tune import child
from wmsched import zoo

PROGRAMS = 60


def seconds_of(tiles, unroll):
    """A made-up machine: best at 8 x 16 with unrolling, slower the further away (in powers of two)."""
    distance = abs(np.log2(tiles[0] / 8)) + abs(np.log2(tiles[1] / 16)) + 0.5 * (unroll == 0)
    return 1e-4 * 1.5**distance


def record(key, number):
    """The log line of one of 60 programs of a workload; every tenth failed."""
    tiles = 2 ** (number % 6), 2 ** (number // 6 % 5)
    unroll = (0, 512)[number // 30]
    steps = [
        ["SP", 2, 0, 128, [tiles[0]], 1],
        ["SP", 2, 1, 128, [tiles[1]], 1],
        ["AN", 2, 0, 3],
        ["PR", 2, 0, f"auto_unroll_max_step${unroll}"],
    ]
    result = [[1e10], 4, 0.1, 0] if number % 10 == 9 else [[seconds_of(tiles, unroll)], 0, 0.5, 0]
    task = [key, "llvm -num-cores=2", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    return json.dumps({"i": [task, [[], steps]], "r": result, "v": "v0.6"})


@pytest.fixture
def logs(tmp_path):
    """Logs of four workloads of two networks, one line broken, and the workloads file that goes with them."""
    folder = tmp_path / "logs"
    folder.mkdir()
    rows = []
    for number in range(4):
        key = json.dumps([f"{number:032x}", [128, 128]])
        lines = [record(key, int(i)) for i in np.random.default_rng(number).permutation(PROGRAMS)]
        lines.insert(3, '{"i": [["cut')
        (folder / f"{number:04d}_net{number % 2}.json.gz").write_bytes(
            gzip.compress("\n".join(lines).encode())
        )
        rows.append({"workload_key": key, "network": f"net{number % 2}", "weight": number + 1})
    (tmp_path / "workloads.json").write_text(json.dumps(rows))
    return folder


def arguments(logs, out, *more):
    return [
        "--simulate",
        str(logs),
        "--training",
        str(logs),
        "--out",
        str(out),
        "--cache",
        str(out.parent),
        *more,
    ]


def test_simulated_runs_from_command_line_to_table(logs, tmp_path, capsys):
    out = tmp_path / "results.jsonl"
    command = arguments(
        logs,
        out,
        "--methods",
        "ansor,random,tenset",
        "--budgets",
        "4,24",
        "--round-size",
        "6",
        "--seeds",
        "0,1,2",
    )
    assert run.main(command) == 0
    lines = list(read(out))
    assert len(lines) == 4 * 3 * 2 * 3
    assert [line["method"] for line in lines[:3]] == ["ansor", "random", "tenset"]
    for line in lines:
        assert line["status"] == "ok" and line["simulated"]
        assert line["trials"] == line["budget"]
        assert line["best_seconds"] >= line["best_known"] == pytest.approx(1e-4)
        latencies = [latency for _, _, latency in line["curve"]]
        assert latencies == sorted(latencies, reverse=True) and latencies[-1] == line["best_seconds"]

    def mean(method, budget):
        return np.mean([x["best_seconds"] for x in lines if (x["method"], x["budget"]) == (method, budget)])

    assert mean("tenset", 4) == pytest.approx(1e-4)  # it has seen the same machine on other workloads
    assert mean("ansor", 24) < mean("random", 24)  # it learns after two rounds
    assert mean("random", 24) < mean("random", 4)
    text = capsys.readouterr().out
    assert "simulated" in text and "tenset over random" in text
    assert "24 trials in rounds of 6" in text


def test_tlp_learns_from_the_other_workloads_and_takes_its_turn(logs, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "fit", functools.partial(fit.fit, options=fit.Options(epochs=8)))
    out = tmp_path / "results.jsonl"
    assert run.main(arguments(logs, out, "--methods", "tlp,random", "--budgets", "4", "--seeds", "0,1")) == 0
    lines = list(read(out))
    assert [line["method"] for line in lines[:2]] == ["tlp", "random"]

    def mean(method):
        return np.mean([x["best_seconds"] for x in lines if x["method"] == method])

    assert mean("tlp") < mean("random")


def test_a_run_stopped_half_way_goes_on_where_it_was(logs, tmp_path, monkeypatch):
    whole, stopped = tmp_path / "whole.jsonl", tmp_path / "stopped.jsonl"
    options = ("--methods", "ansor,random", "--budgets", "8")
    run.main(arguments(logs, whole, *options))

    real, calls = run.simulate.simulate, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(run.simulate, "simulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.main(arguments(logs, stopped, *options))
    assert len(list(read(stopped))) == 3
    with stopped.open("a") as file:
        file.write('{"kind":"run","task":')  # a kill in the middle of a write
    assert run.main(arguments(logs, stopped, *options)) == 0
    assert len(calls) == 4 + 5  # the three finished runs are not repeated

    def what(path):
        return [(x["task"], x["method"], x["best_seconds"]) for x in read(path)]

    assert what(stopped) == what(whole)


def test_a_leaking_bundle_is_refused_before_anything_runs(logs, tmp_path, capsys):
    out = tmp_path / "results.jsonl"
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    hashes = [leak.workload_hash(row["workload_key"]) for row in zoo.find("conv2d-relu")]
    (bundle / "config.json").write_text(json.dumps({"fingerprint": {"workloads": hashes}}))
    command = [
        "--tasks",
        "representatives",
        "--methods",
        "random,wmsched",
        "--bundle",
        str(bundle),
        "--out",
        str(out),
    ]
    assert run.main(command) == 2
    assert "trained on 1 of the tasks" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--methods", "gradient"], "no method is called 'gradient'"),
        (["--methods", "wmsched"], "give --bundle"),
        (["--methods", "wmsched", "--bundle", "nowhere"], "no bundle 'nowhere'"),
        (["--tasks", "nothing"], "no recorded task nothing"),
        (["--budgets", "0"], "must be at least 1"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_reason(logs, tmp_path, capsys, more, says):
    assert run.main(arguments(logs, tmp_path / "r.jsonl", *more)) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def oracle(train, test):
    """A scorer that cheats: the measured times themselves."""
    assert {g.key for g in train}.isdisjoint(g.key for g in test)
    return {g.key: -np.nan_to_num(g.seconds, nan=1e3) for g in test}


def test_offline_comparison_leaves_whole_networks_out(logs, tmp_path, capsys):
    out = tmp_path / "offline.jsonl"
    command = ["--records", str(logs), "--workloads", str(tmp_path / "workloads.json"), "--out", str(out)]
    command += ["--methods", "random,plain", "--scorer", f"oracle={__name__}:oracle", "--folds", "0"]
    assert offline.main(command) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]

    def mean(method, name):
        return np.mean([line[name] for line in lines if line["method"] == method])

    assert mean("oracle", "top1") == mean("oracle", "pairs") == 1.0
    assert mean("plain", "pairs") > 0.95  # the made-up machine is the same for all networks
    assert mean("random", "pairs") == pytest.approx(0.5, abs=0.03)
    assert mean("random", "tau") == pytest.approx(0.0, abs=0.05)
    assert {line["fold"] for line in lines if line["network"] == "net0"} != {
        line["fold"] for line in lines if line["network"] == "net1"
    }
    assert (
        "| oracle | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 |"
        in capsys.readouterr().out
    )


def test_one_network_cannot_be_left_out():
    with pytest.raises(ValueError, match="at least two"):
        offline.folds({"a": "net", "b": "net"}, 5)


CHILD = """
import os, subprocess, sys, time
from pathlib import Path
from benchmarks.tune import child

def step(spec):
    if spec["do"] == "crash":
        print("about to abort", flush=True)
        os.abort()
    if spec["do"] == "hang":
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(spec["pid"]).write_text(str(worker.pid))
        time.sleep(600)
    return {"status": "ok", "twice": 2 * spec["number"]}

child.answer(step)
"""


@pytest.fixture
def child_module(tmp_path, monkeypatch):
    (tmp_path / "some_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "some_child"


def test_a_child_answers(child_module, tmp_path):
    outcome = child.call(child_module, {"do": "", "number": 21}, timeout=60, output=tmp_path / "x" / "out")
    assert outcome == {"status": "ok", "twice": 42}


def test_a_crashing_child_is_an_error_with_its_last_words(child_module, tmp_path):
    outcome = child.call(child_module, {"do": "crash"}, timeout=60, output=tmp_path / "out")
    assert outcome["status"] == "error"
    assert "signal 6" in outcome["error"] and "about to abort" in outcome["error"]


def test_a_hanging_child_is_ended_with_its_workers(child_module, tmp_path):
    pid = tmp_path / "pid"
    outcome = child.call(child_module, {"do": "hang", "pid": str(pid)}, timeout=5, output=tmp_path / "out")
    assert outcome["status"] == "timeout"
    with pytest.raises((ProcessLookupError, FileNotFoundError)):
        for _ in range(100):
            os.kill(int(pid.read_text()), 0)
            if Path(f"/proc/{pid.read_text()}/stat").read_text().split()[2] == "Z":
                raise ProcessLookupError  # dead, and not yet collected by init
            time.sleep(0.05)
