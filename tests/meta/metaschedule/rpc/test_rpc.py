"""Devices behind a tracker: what they time, and what becomes of it when they die, hang and come back."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import programs as P
import pytest
import tvm
from device_park import Park
from rich.console import Console
from tuning_models import small
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult

import wmsched
from wmsched.base.errors import EnvironmentProblem, WmschedError
from wmsched.measure.fleet import DeviceRefused
from wmsched.measure.tracker import Tracker
from wmsched.metaschedule import tune
from wmsched.metaschedule.measure.measurer import Measurer
from wmsched.metaschedule.rpc import remote_device, runner
from wmsched.metaschedule.rpc.remote_device import Gate, RemoteDevice, differences
from wmsched.metaschedule.rpc.runner import describe, opened
from wmsched.schedules.database import RECORDS
from wmsched.tune.options import ModelOptions
from wmsched.tune.rpc.one_device import OneDevice
from wmsched.tune.tune_model import tune_model

TIMING = {"timeout": 20.0, "places": 1, "min_repeat_ms": 0}


@pytest.fixture
def park(tmp_path):
    folder = tmp_path / "park"
    folder.mkdir()
    found = Park(folder)
    yield found
    found.close()


def target_on(park: Park) -> tvm.target.Target:
    return tvm.target.Target(json.loads(describe(park.tracker)["target"]))


@pytest.mark.slow
def test_a_search_loses_nothing_when_devices_die_hang_and_come_back(park, tmp_path) -> None:
    """One device is killed in mid-search and comes back; then the other one hangs."""
    park.device("one")
    park.device("two")
    park.wait(2)
    target, told = target_on(park), list[str]()
    candidates = list(P.sampled(P.context(P.matmul(), target))) * 3
    results = []
    with opened(park.tracker, target, tell=told.append, **(TIMING | {"timeout": 5.0})) as devices:
        measurer = Measurer(target, devices=devices)

        def measure(disturb) -> None:
            for k, (candidate, result) in enumerate(measurer.measure(candidates)):
                assert candidate is candidates[k]
                results.append(result)
                if k == 2:
                    disturb()

        for disturb in (lambda: park.kill("one"), lambda: park.signal("two", signal.SIGSTOP)):
            until = time.monotonic() + 60
            while len(devices.fleet.names()) < 2 and time.monotonic() < until:
                time.sleep(0.2)
            assert len(devices.fleet.names()) == 2, (told, park.said("one again"))
            measure(disturb)
            if "one again" not in park.processes:
                park.device("one again")
        tallies = devices.fleet.tallies
        assert (
            sum(tally.done for tally in tallies.values()) == len(results) == 2 * len(candidates)
        )  # each once
        assert sum(tally.lost for tally in tallies.values()) == 2 and len(tallies) == 3
    assert [str(result.error_msg) for result in results if not result.run_secs] == []
    lost = [text for text in told if "is lost" in text]
    assert len(lost) == 2 and any("in time" in text for text in lost)
    # a device that goes on finds its session gone, and takes the next
    park.signal("two", signal.SIGCONT)
    park.wait(2)
    with opened(park.tracker, target, tell=told.append, **TIMING) as devices:
        assert len(devices.fleet.names()) == 2
    assert not [name for name in os.listdir(tmp_path) if name.startswith("wmsched-")]


@pytest.mark.slow
def test_a_candidate_that_crashes_or_hangs_costs_no_device(park) -> None:
    park.device("one")
    park.wait(1)
    target, told = target_on(park), list[str]()
    (good, *_) = P.sampled(P.context(P.matmul(), target))
    with opened(park.tracker, target, tell=told.append, **(TIMING | {"timeout": 4.0})) as devices:
        measurer = Measurer(target, devices=devices, builder=Crashing())
        results = [result for _, result in measurer.measure([good, good])]
        assert [bool(result.run_secs) for result in results] == [False, False]
        assert "Timeout" in str(results[1].error_msg)
        ((_, result),) = Measurer(target, devices=devices).measure([good])
        assert result.run_secs
    assert not [text for text in told if "lost" in text]


class Crashing:
    """A builder of two libraries: one crashes, the other never returns."""

    def build(self, inputs: list) -> list[BuilderResult]:
        return [crashing(kind) for kind in ("crash", "hang")]


def crashing(kind: str) -> BuilderResult:
    """A library of C that crashes, or never returns."""
    folder = Path(tempfile.mkdtemp())
    body = "*(volatile int*)0 = 1;" if kind == "crash" else "for (;;) ;"
    (folder / "bad.c").write_text(
        f"int __tvm_ffi_main(void* s, const void* a, int n, void* r) {{ {body} return 0; }}"
    )
    command = ["gcc", "-shared", "-fPIC", "-O0", "-o", str(folder / "bad.so"), str(folder / "bad.c")]
    subprocess.run(command, check=True)
    return BuilderResult(str(folder / "bad.so"), None)


@pytest.mark.slow
def test_a_whole_model_is_tuned_on_devices_and_timed_on_one(park, files, tmp_path) -> None:
    """The device that times the final builds is killed while it does, and another one goes on."""
    park.device("one")
    park.device("two")
    park.wait(2)
    killed, plain = list[str](), OneDevice.ask

    def ask(self, handler, path):
        if handler == "model_time" and not killed:
            port = self.name.rpartition(":")[2]
            killed.extend(name for name in ("one", "two") if f"port {port} " in park.said(name))
            park.kill(*killed)
        return plain(self, handler, path)

    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    options = ModelOptions(
        name=files["net"], out=tmp_path / "out", cost_model="random", seed=1, trials=10, finalists=2,
        rpc=park.tracker, places=1,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneDevice, "ask", ask)
        found = tune_model(options, console=console, strategy=small)
    text = console.export_text()
    assert len(killed) == 1 and "2 of 2 devices 'board'" in text
    records = [json.loads(line) for line in (tmp_path / "out" / RECORDS).read_text().splitlines()]
    assert len(records) == 10
    assert set(found.seconds) == {"tuned", "untuned"} and all(0 < s < 1 for s in found.seconds.values())
    assert "on one of the devices" in found.why_not_eager
    assert found.difference is not None and found.difference < 1e-3
    assert wmsched.load(tmp_path / "out").report["library"]["file"]


@pytest.mark.slow
def test_tune_tir_takes_tvms_own_config(park, tmp_path, bundle) -> None:
    park.device("one")
    park.wait(1)
    target = target_on(park)
    where = park.tracker
    config = ms.runner.RPCConfig(where.tracker_host, where.tracker_port, where.tracker_key)
    P.fresh_loggers()
    options = {"cost_model": bundle, "num_trials_per_iter": 4, "seed": 1}
    tune.tune_tir(P.matmul(), target, tmp_path / "work", 8, rpc_config=config, **options)
    records = [json.loads(line) for line in (tmp_path / "work" / RECORDS).read_text().splitlines()]
    assert len(records) == 8
    assert all(0 < seconds < 1 for _, (_, times, *_) in records for seconds in times)
    with pytest.raises(WmschedError, match="rpc_config= and runner="):
        tune.tune_tir(P.matmul(), target, tmp_path, 8, rpc_config=config, runner=P.NoRunner(), **options)


def test_what_is_missing_is_named_with_the_remedy(park) -> None:
    nobody = Tracker(tracker_host="127.0.0.1", tracker_port=1, tracker_key="board")
    with pytest.raises(EnvironmentProblem, match=r"no RPC tracker answers at 127\.0\.0\.1:1 .*rpc_tracker"):
        describe(nobody)
    park.plain("plain")
    park.wait(1)
    with pytest.raises(DeviceRefused, match=r"plain RPC server of TVM.*wmsched device --tracker"):
        describe(park.tracker)
    other = Tracker(tracker_host="127.0.0.1", tracker_port=park.tracker.tracker_port, tracker_key="pi")
    with pytest.raises(EnvironmentProblem, match=r"no device 'pi' \(it has: board\); start one.*--key pi"):
        describe(other)
    gpu = tvm.target.Target(P.GPU)
    with (
        pytest.raises(EnvironmentProblem, match="target is cuda"),
        opened(nobody, gpu, tell=print, timeout=1),
    ):
        pass


class Answers:
    """A link to a pretended device: its description, and seconds of each yardstick."""

    def __init__(self, about: dict, seconds: list[float], slow: int = 0) -> None:
        self.slow = slow  # timings that a disturbance doubles
        self.about, self.seconds, self.asked = about, seconds, Counter[str]()
        self.closed = False

    def ask(self, what: str, *, seconds=None, is_stopped=None, name="", arguments=None, path=""):
        self.asked[name or what] += 1
        if what == "take":
            return self.about["address"]
        if name == "about":
            return {"ok": self.about}
        if name == "time":
            number = 0 if "product" in arguments["library"] else 1
            self.slow -= 1
            seconds = self.seconds[number] * (2 if self.slow >= 0 else 1)
            return {"ok": {"seconds": [seconds], "error": ""}}
        return {"ok": True} if what == "call" else True

    def close(self) -> None:
        self.closed = True


def about(address: str, **different) -> dict:
    same = {"host": "h", "cpu": "Xeon", "target": "t", "threads": 2, "tvm": "0.27", "wmsched": "abc"}
    return same | {"address": address} | different


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """A gate, and a function that has it meet a pretended device."""
    links: list[Answers] = []
    monkeypatch.setattr(remote_device, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(remote_device, "Link", lambda tracker: links.pop())
    programs = []
    for name in ("product", "sum"):
        (tmp_path / f"{name}.so").write_bytes(b"")
        programs.append(remote_device.Yardstick(tmp_path / f"{name}.so", []))
    told: list[str] = []
    tracker = Tracker(tracker_host="h", tracker_port=1, tracker_key="board")
    found = Gate(tracker, tvm.target.Target(P.CPU), programs, tell=told.append, limit=1.0)

    def meet(link: Answers) -> RemoteDevice:
        links.append(link)
        device = found.connect(lambda: False)
        assert device is not None
        return device

    return meet, told


def test_devices_of_one_kind_are_scaled_to_the_first_ones_speed(gate, tmp_path) -> None:
    meet, told = gate
    assert meet(Answers(about("a:1"), [1e-3, 4e-3])).scale == 1.0
    assert meet(Answers(about("b:1"), [1.02e-3, 4.1e-3])).scale == 1.0  # within the noise
    assert told == []
    slow = meet(Answers(about("c:1"), [2e-3, 8e-3]))
    assert slow.scale == pytest.approx(0.5)
    assert any("c:1" in text and "0.50 times as fast" in text for text in told)
    (tmp_path / "product-2.so").write_bytes(b"")
    timed = slow.time(tmp_path / "product-2.so", "cpu", [], 1.0)
    assert timed["seconds"] == [pytest.approx(1e-3)]  # as the first device would take


@pytest.mark.parametrize("slow", [1, 3, 6])
@pytest.mark.parametrize("disturbed", ["first", "second"])
def test_a_spell_of_half_speed_makes_no_device_a_slow_one(gate, slow, disturbed) -> None:
    meet, told = gate
    meet(Answers(about("a:1"), [1e-3, 4e-3], slow * (disturbed == "first")))
    assert meet(Answers(about("b:1"), [1e-3, 4e-3], slow * (disturbed == "second"))).scale == 1.0
    assert told == []


@pytest.mark.parametrize(
    "different", [{"cpu": "EPYC"}, {"target": "u"}, {"threads": 1}, {"tvm": "0.28"}, {"wmsched": "abd"}]
)
def test_a_device_of_another_kind_is_refused_by_name(gate, different) -> None:
    meet, _ = gate
    meet(Answers(about("a:1"), [1e-3, 4e-3]))
    (value,) = different.values()
    link = Answers(about("b:1", **different), [1e-3, 4e-3])
    with pytest.raises(DeviceRefused, match=rf"b:1 .* another kind than a:1 .*{value} in place of .*--key"):
        meet(link)
    assert link.closed and not link.asked["time"]


def test_a_device_that_no_one_factor_describes_is_refused(gate) -> None:
    meet, _ = gate
    meet(Answers(about("a:1"), [1e-3, 4e-3]))
    with pytest.raises(DeviceRefused, match=r"b:1 .* 2.00 times as fast as the first at arithmetic and 0.50"):
        meet(Answers(about("b:1"), [0.5e-3, 8e-3]))


def test_kinds_are_compared_by_all_that_changes_a_schedule() -> None:
    one, other = (RemoteDevice(name, None, 1.0, about(name)) for name in ("a:1", "b:1"))
    assert differences(one, other) == ""
    other.about["cpu"], other.about["threads"] = "EPYC", 4
    assert differences(one, other) == "processor EPYC in place of Xeon, threads 4 in place of 2"


def test_a_device_that_never_answers_costs_its_time_limit_alone(park, monkeypatch) -> None:
    """One that hangs before it is connected: `describe` says so, and the search does without it."""
    park.device("one")
    park.wait(1)
    monkeypatch.setattr(remote_device, "START_SECONDS", 0.5)
    monkeypatch.setattr(runner, "DESCRIBE_TRIES", 1)
    park.signal("one", signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(EnvironmentProblem, match="no answer to 'open' in time"):
        describe(dataclasses.replace(park.tracker, session_timeout_sec=0.5))
    assert time.monotonic() - began < 30
    threading.Timer(0.5, park.signal, ["one", signal.SIGCONT]).start()
    monkeypatch.setattr(remote_device, "START_SECONDS", 60.0)
    monkeypatch.setattr(runner, "DESCRIBE_TRIES", 3)
    assert describe(park.tracker)["host"]
