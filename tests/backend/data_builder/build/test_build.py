"""`wmsched-data build` with AutoScheduler's TVM: states, errors kept, and a kill at any moment."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import tvm
from small_tasks import TARGET, Quiet, make_task
from tvm import auto_scheduler
from tvm.runtime.object import _new_object

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.derive.validate import problems
from data_builder.read.workloads import export, from_pickle, read_rows, write_rows
from wmsched.ansor.compute_dag import initial_text
from wmsched.base.errors import WmschedError
from wmsched.learn.data.dataset import Dataset

SIZES = (16, 24, 32, 48, 64, 96)
PER_TASK = 24


@pytest.fixture(scope="session")
def tasks():
    return [make_task(n) for n in SIZES]


@pytest.fixture(scope="session")
def logs(made_once, tasks) -> Path:
    """One log of all tasks, mixed, and their workloads file; sampled by the search, with made-up times."""
    return made_once("build-logs", lambda root: write_logs(root, tasks))[0]


def write_logs(root: Path, tasks) -> None:
    root.mkdir()
    result = auto_scheduler.measure.MeasureResult([1e-3], 0, "", 0.1, 1.0)
    lines: list[list[str]] = []
    rows = []
    for place, task in enumerate(tasks):
        policy = auto_scheduler.SketchPolicy(
            task,
            auto_scheduler.RandomModel(),
            params={"sample_init_min_population": PER_TASK, "evolutionary_search_population": 64},
            seed=7,
            verbose=0,
        )
        states = list(policy.sample_initial_population())[:PER_TASK]
        dump = auto_scheduler.measure_record.dump_record_to_string
        lines.append(
            [str(dump(auto_scheduler.MeasureInput(task, state), result)).strip() for state in states]
        )
        tensors = json.loads(tvm.ir.save_json(task.compute_dag.tensors))
        rows.append({
            "id": place, "network": "net", "weight": 1, "desc": f"matmul {SIZES[place]}", "log": None,
            "workload_key": str(task.workload_key), "target": TARGET,
            "flop_ct": float(task.compute_dag.flop_ct), "layout_rewrite": 0, "tensors": tensors,
        })  # fmt: skip
    mixed = [line for turn in zip(*lines, strict=True) for line in turn]
    with gzip.open(root / "mixed.json.gz", "wt") as stream:
        stream.write("\n".join(mixed) + "\n")
    write_rows(root / "workloads.json.gz", rows)


def read_lines(logs: Path) -> list[str]:
    return gzip.decompress((logs / "mixed.json.gz").read_bytes()).decode().splitlines()


@pytest.fixture(scope="session")
def whole(made_once, logs: Path) -> Path:
    """The dataset of `logs` with all states, built without disturbance; no test may change it."""
    options = BuildOptions(workloads=logs / "workloads.json.gz", states_per_workload=0, jobs=2)

    def make(root: Path) -> None:
        build([str(logs)], root / "ds", options, Quiet())

    return made_once("build-whole", make)[0] / "ds"


def test_every_record_has_all_its_states(whole: Path, tasks) -> None:
    dataset = Dataset(whole)
    by_key = {workload.key: workload for workload in dataset.workloads()}
    assert set(by_key) == {str(task.workload_key) for task in tasks}
    for task in tasks:
        workload = by_key[str(task.workload_key)]
        assert workload.flop_ct == float(task.compute_dag.flop_ct)
        assert workload.hardware == (2, 64, 64, 0, 0, 0, 0, 0)
        assert [stage.kind for stage in workload.stages] == [
            "placeholder",
            "placeholder",
            "compute",
            "compute",
        ]
        assert dataset.initial(workload.id) == initial_text(task.compute_dag)
        states = dataset.states(workload.id)
        trajectories = dataset.trajectories(workload.id)
        assert len(trajectories) == PER_TASK
        for trajectory in trajectories:
            assert len(trajectory.states) == len(trajectory.steps) + 1 == len(trajectory.action_texts) + 1
            assert set(trajectory.states) <= set(states)
        assert set(states) == {name for trajectory in trajectories for name in trajectory.states}
    assert list(problems(whole)) == []


def test_a_last_state_is_the_program_that_tvm_lowers(whole: Path, logs: Path, tasks) -> None:
    from tvm.auto_scheduler.measure_record import load_record_from_string

    from wmsched.ansor.compute_dag import state_text

    dataset = Dataset(whole)
    task = tasks[2]
    workload_id = next(w.id for w in dataset.workloads() if w.key == str(task.workload_key))
    states = dataset.states(workload_id)
    lines = read_lines(logs)
    for (_, line), trajectory in zip(
        dataset.sources(workload_id), dataset.trajectories(workload_id), strict=True
    ):
        loaded, _ = load_record_from_string(lines[line - 1])
        text = state_text(task.compute_dag, task.compute_dag.infer_bound_from_state(loaded.state))
        assert states[trajectory.states[-1]] == text


def test_fewer_states_keep_every_record_and_error(tmp_path: Path, logs: Path) -> None:
    lines = read_lines(logs)
    first = json.loads(lines[0])
    failed = {**first, "r": [[1e10], 2, 0.3, 5]}
    refused = json.loads(lines[0])
    refused["i"][1][1] = [["SP", 99, 0, 16, [4], 1]]
    log = tmp_path / "log.json"
    log.write_text("\n".join([*lines, json.dumps(failed), json.dumps(refused), '{"i": [[']))
    report = Quiet()
    options = BuildOptions(workloads=logs / "workloads.json.gz", states_per_workload=5, jobs=1)
    totals = build([str(log)], tmp_path / "ds", options, report)["totals"]
    assert totals["records"] == len(lines) + 2 and totals["bad"] == 1
    assert totals["errors_by_kind"] == {"ok": len(lines) + 1, "compile_host": 1}
    assert totals["replayed"] + totals["replay_failed"] == 5 * len(SIZES)
    dataset = Dataset(tmp_path / "ds")
    for workload_id, trajectories in dataset.iter_trajectories():
        kept = [trajectory for trajectory in trajectories if trajectory.states]
        assert 4 <= len(kept) <= 5
        assert dataset.initial(workload_id)
        assert all(trajectory.action_texts for trajectory in trajectories)
    assert any(text.startswith(f"{log}:{len(lines) + 3}: ") for text in report.problems)
    assert list(problems(tmp_path / "ds")) == []


def test_a_record_that_does_not_replay_is_kept_and_told(tmp_path: Path, logs: Path) -> None:
    record = json.loads(read_lines(logs)[0])
    record["i"][1][1] = [["SP", 2, 0, 16, [4], 1], ["SP", 99, 0, 16, [4], 1]]
    log = tmp_path / "log.json"
    log.write_text(json.dumps(record))
    report = Quiet()
    options = BuildOptions(workloads=logs / "workloads.json.gz", jobs=1)
    totals = build([str(log)], tmp_path / "ds", options, report)["totals"]
    assert (totals["records"], totals["replayed"], totals["replay_failed"]) == (1, 0, 1)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"{log}:1: kept without states: step 2 cannot be replayed")
    ((_, (trajectory,)),) = Dataset(tmp_path / "ds").iter_trajectories()
    assert trajectory.states == () and trajectory.measurement.ok and len(trajectory.action_texts) == 2


def tables(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): pq.read_table(path, partitioning=None).to_pylist()
        for path in sorted(root.rglob("*.parquet"))
    }


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_killed_build_resumed_equals_an_undisturbed_one(tmp_path: Path, logs: Path, whole: Path) -> None:
    out = tmp_path / "ds"
    command = [
        sys.executable,
        "-m",
        "data_builder.cli.main",
        "build",
        str(logs),
        "--out",
        str(out),
        "--jobs",
        "1",
    ]
    command += ["--workloads", str(logs / "workloads.json.gz"), "--states-per-workload", "0"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while (done := len(list(out.glob(".build/done/*.json")))) < 3 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 3 <= done < len(SIZES)  # killed in the middle indeed; tests without TVM kill it several times
    assert not (out / "manifest.json").exists()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob(".build/done/*.json")}
    resumed = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = resumed.communicate(timeout=240)[1]
    assert resumed.returncode == 0 and "going on with the build" in said
    assert len(before) >= 3
    assert tables(out) == tables(whole)
    assert files(out) == files(whole)
    assert json.loads((out / "manifest.json").read_text()) == json.loads(
        (whole / "manifest.json").read_text()
    )
    assert list(problems(out)) == []


def test_the_commands_tell_their_status(whole: Path, logs: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "data_builder.cli.main", *map(str, arguments)]
        env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)

    shown = run("stats", whole)
    assert shown.returncode == 0 and str(len(SIZES) * PER_TASK) in shown.stdout
    assert run("validate", whole).returncode == 0
    damaged = tmp_path / "ds"
    damaged.mkdir()
    (damaged / "manifest.json").write_text((whole / "manifest.json").read_text())
    found = run("validate", damaged)
    assert found.returncode == 1 and "workloads.parquet" in found.stdout
    refused = run("build", logs, "--out", whole, "--states-per-workload", 3)
    assert refused.returncode == 1 and "choose another --out" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert run("build", logs).returncode == 2  # no --out


def test_tensets_pickles_become_one_open_file(tmp_path: Path, tasks) -> None:
    import pickle

    info = tmp_path / "tenset" / "network_info"
    info.mkdir(parents=True)
    (info / "all_tasks.pkl").write_bytes(pickle.dumps(list(tasks[:4])))
    name = "((resnet_50,[(1,3,224,224)]),llvm).task.pkl"
    (info / name).write_bytes(pickle.dumps((list(tasks[1:3]), [5, 2])))
    with pytest.raises(WmschedError, match="--trust-pickle"):
        export([str(tmp_path / "tenset")])
    rows = export([str(tmp_path / "tenset"), "zoo"], trust_pickle=True)
    ours = {row["workload_key"]: row for row in rows}
    assert len(ours) == len(rows) > 90  # the benchmark's tasks too
    first, second, third = (ours[str(task.workload_key)] for task in tasks[:3])
    assert (second["network"], second["weight"]) == ("resnet_50___1_3_224_224", 5) and third["weight"] == 2
    assert first["network"] == "all_tasks"
    write_rows(tmp_path / "w.json.gz", rows)
    assert list(read_rows(tmp_path / "w.json.gz").values()) == rows
    assert export([str(tmp_path / "w.json.gz")]) == rows
    with pytest.raises(WmschedError, match=r"no \*\.task\.pkl"):
        export([str(tmp_path)])


def test_a_pickle_of_tasks_is_converted_only_on_request(tmp_path: Path, tasks) -> None:
    import pickle

    path = tmp_path / "all_tasks.pkl"
    path.write_bytes(pickle.dumps([tasks[0], (tasks[1:3], [1, 2])]))
    with pytest.raises(WmschedError, match="--trust-pickle"):
        read_rows(path)
    command = [
        sys.executable,
        "-m",
        "data_builder.cli.main",
        "export-workloads",
        str(path),
        "--out",
        str(tmp_path / "w.json.gz"),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1 and "--trust-pickle" in run.stderr
    subprocess.run([*command, "--trust-pickle"], check=True, timeout=120, capture_output=True)
    rows = read_rows(tmp_path / "w.json.gz")
    assert list(rows) == [str(task.workload_key) for task in tasks[:3]]
    for row in rows.values():
        dag = auto_scheduler.ComputeDAG(list(tvm.ir.load_json(orjson.dumps(row["tensors"]).decode())))
        assert dag.workload_key() == row["workload_key"]


class Saved:
    """Is pickled as an object of TVM's with that state."""

    def __init__(self, kind: type, state: dict) -> None:
        self.kind, self.state = kind, state

    def __reduce__(self):
        return (_new_object, (self.kind,), self.state)


def test_pickles_of_older_tvms_are_read(tmp_path: Path, tasks) -> None:
    """TenSet's are of 0.8: their targets have fewer fields than today's, and options that are gone."""
    import pickle

    target = tvm.target.Target("llvm -mcpu=skylake-avx512 -model=platinum-8272 -num-cores=16")
    graph = json.loads(target.__getstate__()["handle"])
    for node in graph["nodes"]:
        if node.get("type_key") == "Target":
            node["attrs"] = {name: node["attrs"][name] for name in ("attrs", "keys", "kind", "tag")}
    with pytest.raises(tvm.TVMError, match="cannot find field"):
        tvm.target.Target("llvm").__setstate__({"handle": json.dumps(graph)})  # today's loader
    state = tasks[0].__getstate__()
    old = {name: state[name] for name in ("compute_dag", "workload_key", "layout_rewrite_option")}
    old |= {
        "target": Saved(tvm.target.Target, {"handle": json.dumps(graph)}),
        "target_host": None,
        "hardware_params": Saved(auto_scheduler.HardwareParams, {"handle": json.dumps({"old": True})}),
    }
    path = tmp_path / "net.pkl"
    path.write_bytes(pickle.dumps(([Saved(auto_scheduler.SearchTask, old)], [3])))
    (row,) = from_pickle(path)
    assert row["target"] == str(target) and (row["weight"], row["network"]) == (3, "net")
    assert row["workload_key"] == str(tasks[0].workload_key) and row["flop_ct"] > 0


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch exploded",))


def test_even_a_trusted_pickle_runs_no_foreign_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tasks.pkl"
    path.write_bytes(pickle.dumps([Bomb()]))
    with pytest.raises(WmschedError, match=r"asks for posix\.system"):
        from_pickle(path)
    assert not (tmp_path / "exploded").exists()
    path.write_bytes(b"\x80\x04garbage")
    with pytest.raises(WmschedError, match="cannot be unpickled"):
        from_pickle(path)
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(WmschedError, match="holds no search tasks"):
        from_pickle(path)
