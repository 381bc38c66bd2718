"""Which of its best schedules a function gets: the one that is fastest in the model."""

from __future__ import annotations

import gc
import math
import time
import weakref
from pathlib import Path

import pytest
import torch
import tvm
from torch import nn
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms

from wmsched.metaschedule import tasks as task_list
from wmsched.relax.passes import pipeline
from wmsched.toolchain.targets import meta_host_target
from wmsched.tune import in_model_selection
from wmsched.tune.in_model_selection import (
    WITHIN,
    Finalists,
    choose,
    database_of,
    place_of,
    room,
    save,
    top_schedules,
)
from wmsched.tune.latency import loaded

TARGET = tvm.target.Target(meta_host_target())


class Machine:
    """In place of a virtual machine: its functions take so many seconds."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.told = seconds, lambda *_: 0

    def set_instrument(self, told) -> None:
        self.told = told

    def __getitem__(self, name: str):
        if name != "main":
            raise AttributeError(name)
        return self.run

    def run(self) -> None:
        for name, seconds in self.seconds.items():
            self.told(None, name, True, None)
            time.sleep(seconds)
            self.told(None, name, False, None)


class Contest:
    """`choose` with made-up times of each function's schedules, and what was built for it."""

    def __init__(self, monkeypatch, folder: Path, **seconds: list[float]) -> None:
        self.machines: list[Machine] = []
        self.programs = [Finalists(None, [None] * len(times), {name}) for name, times in seconds.items()]
        self.seconds, self.folder, self.built = seconds, folder, []
        self.broken: set[int] = set()
        monkeypatch.setattr(in_model_selection, "write", lambda programs, _: [one.chosen for one in programs])
        monkeypatch.setattr(in_model_selection, "SECONDS", 0.01)
        monkeypatch.setattr(ms.database, "MemoryDatabase", lambda: None)

    def build(self, ranks: list[int], path: Path) -> None:
        if max(ranks) in self.broken:
            raise RuntimeError("no such schedule")
        path.write_text(" ".join(map(str, ranks)))
        self.built.append(ranks)

    def machine(self, path: Path):
        ranks = [int(rank) for rank in path.read_text().split()] if path.exists() else [0] * len(self.seconds)
        named = zip(self.seconds.items(), ranks)
        self.machines.append(Machine({f"{name}_prepacked": times[rank] for (name, times), rank in named}))
        return self.machines[-1], ()

    def __call__(self, **more) -> list[int]:
        changed = choose(
            self.programs, self.folder / "first.so", self.build, self.machine, self.folder, **more
        )
        chosen = [one.chosen for one in self.programs]
        assert changed == any(chosen) and not list(self.folder.iterdir())
        assert all(machine.told is in_model_selection._ignored for machine in self.machines)
        return chosen


def test_each_function_gets_what_is_fastest_in_the_model(monkeypatch, tmp_path):
    contest = Contest(monkeypatch, tmp_path, a=[0.008, 0.012, 0.004], b=[0.004, 0.008], c=[0.008, 0.006])
    assert contest() == [2, 0, 1]
    assert contest.built == [[1, 1, 1], [2, 0, 0]]  # one build of each rank, the first where there is none
    for one, seconds in zip(contest.programs, (0.004, 0.004, 0.006)):
        assert one.seconds == pytest.approx(seconds, rel=0.3)


def test_a_function_that_takes_no_time_is_not_worth_a_build(monkeypatch, tmp_path):
    contest = Contest(monkeypatch, tmp_path, a=[0.04], b=[0.0, 0.0])
    monkeypatch.setattr(in_model_selection, "SHARE", 0.05)
    assert contest() == [0, 0] and not contest.built


def test_what_cannot_be_built_is_left_out_and_an_interrupt_ends_it(monkeypatch, tmp_path):
    contest = Contest(monkeypatch, tmp_path, a=[0.008, 0.002, 0.004])
    contest.broken = {1}
    assert contest() == [2]
    contest.programs[0].keep_first()
    assert contest.programs[0].chosen == 0
    assert contest.programs[0].seconds == pytest.approx(0.008, rel=0.3)
    with pytest.raises(KeyboardInterrupt):
        contest(interrupted=lambda: True)


def test_functions_of_other_names_are_left_as_they_are(monkeypatch, tmp_path):
    """Were TVM to call them otherwise, nothing would be known of them."""
    contest = Contest(monkeypatch, tmp_path, a=[0.004, 0.002])
    contest.programs[0].functions = {"another"}
    assert contest() == [0] and not contest.built and math.isnan(contest.programs[0].seconds)


def test_a_machine_is_let_go_with_its_weights(tmp_path):
    """TVM holds what it tells, and that the machine: no collector of garbage sees through it."""
    exported = torch.export.export(nn.Linear(16, 8), (torch.ones(4, 16),))
    prepared = pipeline.prepare(from_exported_program(exported), TARGET)
    pipeline.compile_module(prepared, TARGET).export_library(str(tmp_path / "m.so"))
    with in_model_selection.Timed([], *loaded(tmp_path / "m.so", TARGET, [torch.ones(4, 16)])) as timed:
        assert timed.run() == []
        gone = weakref.ref(timed)
    del timed
    gc.collect()
    assert gone() is None


def test_a_function_s_name_in_the_library():
    places = {"matmul": 0, "matmul1": 1, "of_prepacked": 2}
    named = ("matmul", "matmul1_prepacked", "matmul_prepacked1", "of_prepacked", "vm.builtin.reshape")
    assert [place_of(name, places) for name in named] == [0, 1, 0, 2, None]


@pytest.fixture(scope="module")
def prepared():
    exported = torch.export.export(
        nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), (torch.ones(4, 16),)
    )
    module = from_exported_program(exported)
    return pipeline.prepare(module, TARGET)


def test_the_finalists_are_the_fastest_of_each_program_by_themselves(prepared, tmp_path):
    database = ms.database.MemoryDatabase()
    times = [3.0, 1.0, float("nan"), 1.2, 1.0 * WITHIN * 1.01]
    (first, *others) = task_list.tasks(prepared, TARGET)
    for seconds in times:
        schedule = tvm.s_tir.Schedule(first.mod)
        record = ms.database.TuningRecord(
            schedule.trace, database.commit_workload(first.mod), [seconds if seconds > 0 else 1e10], TARGET
        )
        database.commit_tuning_record(record)
    assert others
    (found,) = top_schedules(prepared, database, 9)
    assert [float(record.run_secs[0]) for record in found.records] == [1.0, 1.2]
    assert found.functions == {first.name} and len(top_schedules(prepared, database, 1)[0].records) == 1
    found.chosen = 1
    for _ in range(2):  # the second in place of the first
        save([found], tmp_path / "best")
    (left,) = database_of(tmp_path / "best").get_all_tuning_records()
    assert float(left.run_secs[0]) == 1.2 and [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_model_that_memory_does_not_hold_several_times_is_left_alone(prepared, monkeypatch):
    weights = 4 * (16 * 32 + 32 + 32 * 8 + 8)
    monkeypatch.setattr(in_model_selection, "available_bytes", lambda: 5 * weights)
    assert not room(prepared)
    monkeypatch.setattr(in_model_selection, "available_bytes", lambda: 6 * weights)
    assert room(prepared)


def test_records_that_the_model_speaks_against_are_corrected(prepared, tmp_path):
    """One function of four was measured at twenty times its time; failures and others stay as they are."""
    tasks = task_list.tasks(prepared, TARGET)
    database = database_of(tmp_path)
    programs = []
    for number in range(4):
        task = tasks[number % len(tasks)]
        mod = tvm.IRModule({"main": task.mod["main"].with_attr("number", number)})
        workload = database.commit_workload(mod)
        wrong = 20.0 if number == 2 else 1.0
        for seconds in ([1e-3 * wrong] * 2, [2e-3 * wrong] * 2, [1e10]):
            trace = tvm.s_tir.Schedule(mod).trace
            record = ms.database.TuningRecord(trace, workload, seconds, TARGET, None)
            database.commit_tuning_record(record)
            if seconds[0] < 1.5e-3 * wrong:
                programs.append(Finalists(workload, [record], {f"f{number}"}, first=2.2e-3, calls=2))
    assert list(in_model_selection.doubtful(programs)) == [2]
    found = in_model_selection.correct_records(programs, tmp_path)
    assert found == {2: pytest.approx(0.05)}
    times = sorted(task_list.mean(one.run_secs) for one in database_of(tmp_path).get_all_tuning_records())
    assert [one for one in times if not math.isnan(one)] == pytest.approx([1e-3] * 4 + [2e-3] * 4)
    assert in_model_selection.doubtful(programs[:2]) == {}  # too few to tell
