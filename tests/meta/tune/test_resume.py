"""`wmsched tune MODEL`: a folder that is gone on with, kills, interrupts, broken databases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import programs as P
import pytest
from checkout import SUPPORT
from rich.console import Console
from tuning_models import made_up, off_from_torch, records, run, schedules, small

from wmsched.base.cores import THREADS, model_threads, tvm_threads
from wmsched.base.errors import EnvironmentProblem, LogError, WmschedError
from wmsched.metaschedule.measure import measurer
from wmsched.metaschedule.measure.measurer import Measurer
from wmsched.schedules import database
from wmsched.schedules.database import RECORDS
from wmsched.tune.options import ModelOptions
from wmsched.tune.prepare import SETTINGS
from wmsched.tune.tune_model import tune_model


def test_a_folder_goes_on_as_it_began(files, tmp_path):
    """Records of programs with other weights' layouts, or timed with other mathematics, do not compare."""
    run(files["layers"], tmp_path, trials=3, **dict.fromkeys(SETTINGS, False))
    about = json.loads((tmp_path / "model.json").read_text())
    assert not any(about[name] for name in SETTINGS)
    programs = (tmp_path / "database_workload.json").read_text()
    text, found = run(files["layers"], tmp_path, trials=6, resume=True)
    for option in ("--vector-math", "--pack-weights", "--channels-last"):
        assert f"was begun without {option} and goes on so" in text
    assert (tmp_path / "database_workload.json").read_text() == programs
    assert json.loads((tmp_path / "model.json").read_text())["pack_weights"] is False
    assert sum(task.trials for task in found.tasks) == 6


def test_a_model_is_tuned_on_all_cores_and_a_folder_keeps_its_number(files, tmp_path, monkeypatch):
    for name in (THREADS, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is put back

    class Late:  # a measurer that is made before names TVM's own number
        def measure(self, candidates):
            yield from made_up().measure(candidates)

    threads = model_threads({})
    text, found = run(files["layers"], tmp_path, trials=3, measurer=Late())
    said = f"programs run on {threads} threads, one for each core" in text
    assert said == (threads != tvm_threads({})) and found.threads == threads
    assert os.environ[THREADS] == str(threads)
    for file in ("model.json", "report.json"):
        assert json.loads((tmp_path / file).read_text())["threads"] == threads
    monkeypatch.setenv(THREADS, str(threads + 1))
    text, found = run(files["layers"], tmp_path, trials=3, resume=True)
    assert f"begun on {threads} thread" in text and found.threads == threads


def test_resuming_counts_what_there_is_and_measures_nothing_twice(tuned, files, tmp_path):
    out = tmp_path / "net"
    shutil.copytree(tuned[0], out)
    before = (out / RECORDS).read_bytes()
    with pytest.raises(LogError, match=r"12 records are in it already: --resume"):
        run(files["net"], out, trials=18)
    text, found = run(files["net"], out, trials=18, resume=True)
    assert "6/6 trials" in text and sum(task.trials for task in found.tasks) == 18
    assert (out / RECORDS).read_bytes().startswith(before)
    assert len(schedules(out)) == len(set(schedules(out))) == 18
    text, found = run(files["net"], out, trials=18, resume=True)
    assert "18 trials already" in text and len(records(out)) == 18
    assert sum(task.trials for task in found.tasks) == 18


def test_a_schedule_of_the_database_is_not_measured_again_even_if_it_is_proposed(files, tmp_path):
    """The same seed proposes the same schedules: without the database's keys all would be measured twice.
    A model that learns is given the database first."""
    run(files["layers"], tmp_path, trials=6)
    run(files["layers"], tmp_path, trials=12, resume=True, cost_model="xgb")
    assert len(schedules(tmp_path)) == len(set(schedules(tmp_path))) == 12


def test_another_model_or_a_folder_of_unknown_origin_is_refused(tuned, files, tmp_path):
    out, *_ = tuned
    with pytest.raises(WmschedError, match=r"net\.pt2 .*this is .*wide\.pt2 .*choose another --out"):
        run(files["wide"], out, trials=18, resume=True)
    (tmp_path / RECORDS).write_text("")
    with pytest.raises(WmschedError, match=r"a database and no model\.json"):
        run(files["net"], tmp_path, trials=6)


KILLED = """
import importlib, sys, time, types
import xgboost, torch, tvm, tvm.s_tir
package = types.ModuleType("tvm.s_tir.tensor_intrin")  # all of it takes half a minute; x86's are enough here
package.__path__ = [tvm.s_tir.__path__[0] + "/tensor_intrin"]
sys.modules[package.__name__] = tvm.s_tir.tensor_intrin = package
importlib.import_module("tvm.s_tir.tensor_intrin.x86")
from pathlib import Path
from tuning_models import made_up, small
from wmsched.tune.options import ModelOptions
from wmsched.tune.tune_model import tune_model

class Slow:
    def measure(self, candidates):
        for pair in made_up().measure(candidates):
            time.sleep(0.2)
            yield pair

options = ModelOptions(name=sys.argv[1], out=Path(sys.argv[2]), trials=100, cost_model="random", seed=1)
tune_model(options, measurer=Slow(), strategy=small)
"""


def test_a_run_that_is_killed_goes_on(files, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    command = [sys.executable, "-c", KILLED, files["layers"], str(tmp_path)]
    path = tmp_path / RECORDS
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as child:
        limit = time.monotonic() + 300
        while not path.is_file() or len(path.read_bytes().splitlines()) < 5:
            assert child.poll() is None and time.monotonic() < limit, child.stdout.read().decode()
            time.sleep(0.05)
        with pytest.raises(WmschedError, match="another run is writing"):
            run(files["layers"], tmp_path, trials=9, resume=True)
        child.send_signal(signal.SIGKILL)
    whole = path.read_bytes().count(b"\n")
    with path.open("ab") as stream:  # as if the kill had come in the midst of a line
        stream.write(b'[0,[[[["GetSBlock",[],["C"')
    (tmp_path / ".build-left").mkdir()
    before = path.read_bytes()[: path.read_bytes().rfind(b"\n") + 1]
    text, found = run(files["layers"], tmp_path, trials=whole + 3, resume=True)
    assert "26 bytes of a line that was never finished" in text and "3/3 trials" in text
    assert path.read_bytes().startswith(before) and len(set(schedules(tmp_path))) == whole + 3
    assert off_from_torch(found.library, files["layers"]) < 1e-5 and not list(tmp_path.glob(".build-*"))


def test_an_interrupt_leaves_what_was_measured(files, tmp_path):
    class Pressed:
        def measure(self, candidates):
            for number, pair in enumerate(made_up().measure(candidates)):
                if number == 1:
                    os.kill(os.getpid(), signal.SIGINT)
                yield pair

    with pytest.raises(KeyboardInterrupt):
        run(files["layers"], tmp_path, trials=12, measurer=Pressed())
    assert len(records(tmp_path)) == 1 and not (tmp_path / "model.so").exists()
    text, _ = run(files["layers"], tmp_path, trials=3, resume=True)
    assert "2/2 trials" in text and len(set(schedules(tmp_path))) == 3


def test_a_database_that_does_not_grow_ends_the_run(files, tmp_path):
    class Full:
        def measure(self, candidates):
            for number, pair in enumerate(made_up().measure(candidates)):
                if number == 1:
                    os.truncate(tmp_path / RECORDS, 0)
                yield pair

    with pytest.raises(LogError, match=r"1 records could not be written: make room .*--resume"):
        run(files["layers"], tmp_path, trials=12, measurer=Full())


def test_a_machine_on_which_nothing_can_be_measured_has_no_failed_schedules(files, tmp_path, monkeypatch):
    def broken(target, **_):
        return Measurer(target, builder=P.NoBuilder(every=1), runner=P.NoRunner())

    monkeypatch.setattr(measurer, "Measurer", broken)
    with pytest.raises(EnvironmentProblem, match="nor a program that must work: made to fail"):
        tune_model(
            ModelOptions(name=files["layers"], out=tmp_path, cost_model="random", seed=1, trials=6),
            console=Console(file=open(os.devnull, "w")),  # noqa: SIM115
            strategy=small,
        )
    assert not (tmp_path / RECORDS).exists() or records(tmp_path) == []


def test_a_broken_line_in_the_midst_is_named(files, tmp_path):
    run(files["layers"], tmp_path, trials=3)
    good = (tmp_path / RECORDS).read_text().splitlines()
    for bad, reason in (
        ("nonsense", "not JSON"),
        (good[1].replace("[0,", "[7,", 1).replace("[1,", "[7,", 1), "it is of program 7"),
        ("[0, 1]", "no record"),
    ):
        (tmp_path / RECORDS).write_text("\n".join([good[0], bad, good[2], ""]))
        with pytest.raises(LogError, match=rf"{RECORDS}:2: {reason}.*delete this line"):
            run(files["layers"], tmp_path, trials=6, resume=True)
    assert database.mend(tmp_path) == []  # every line has its end
    (tmp_path / RECORDS).write_text("\n".join([*good, ""]))
    programs = tmp_path / database.WORKLOADS
    lines = programs.read_text().splitlines()
    for bad, reason in (("nonsense", "not JSON"), ('["0"]', "no program")):
        programs.write_text("\n".join([lines[0], bad, *lines[2:], ""]))
        # without it later records would be of other programs
        with pytest.raises(LogError, match=rf"{programs.name}:2: {reason}.*delete none"):
            run(files["layers"], tmp_path, trials=6, resume=True)
