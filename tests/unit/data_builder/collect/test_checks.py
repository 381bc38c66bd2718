"""What collecting asks before it records: whether anything can be measured, and whose records a log has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from dataset_files import record_line

from data_builder.collect.collect import _check_target, _earlier_rows
from data_builder.collect.measure import Believed
from data_builder.read.workloads import write_rows
from wmsched.base.errors import DatasetError, EnvironmentProblem, LogError


class Machine:
    """A measurer that fails the states in `bad`, and says what it was asked for."""

    def __init__(self, *bad: str) -> None:
        self.bad, self.asked = bad, []

    def measure(self, task, states):
        for state in states:
            self.asked.append((task, state))
            bad = state in self.bad
            yield state, SimpleNamespace(error_no=2 if bad else 0, error_msg="ld: not found" if bad else "")


def measured(machine: Machine) -> list[tuple[str, int]]:
    believed = Believed(machine, lambda: ("must work", "sum"))
    return [(entry, result.error_no) for entry, result in believed.measure("task", ["a", "b", "c"])]


def test_failures_beside_a_time_are_the_schedules_own() -> None:
    machine = Machine("a", "c", "sum")
    assert measured(machine) == [("a", 2), ("b", 0), ("c", 2)]
    assert len(machine.asked) == 3


def test_a_batch_without_a_time_is_believed_where_the_reference_has_one() -> None:
    machine = Machine("a", "b", "c")
    assert measured(machine) == [("a", 2), ("b", 2), ("c", 2)]
    assert machine.asked[3:] == [("must work", "sum")]


def test_where_not_even_the_reference_has_a_time_no_schedule_is_told_of() -> None:
    told = []
    believed = Believed(Machine("a", "b", "c", "sum"), lambda: ("must work", "sum"))
    with pytest.raises(EnvironmentProblem, match=r"none of 3 schedules.*ld: not found.*is kept"):
        told.extend(believed.measure("task", ["a", "b", "c"]))
    assert told == []
    assert list(believed.measure("task", [])) == []


def test_a_machine_that_breaks_in_a_batch_leaves_no_failures(monkeypatch) -> None:
    states = ["good", *"abcd"]
    told = []
    with pytest.raises(EnvironmentProblem, match="none of the last 4"):
        told.extend(Believed(Machine(*"abcd", "sum"), lambda: ("must work", "sum")).measure("task", states))
    assert [entry for entry, _ in told] == ["good"]
    machine = Machine(*"abcd")  # the schedules' own
    found = list(Believed(machine, lambda: ("must work", "sum")).measure("task", states))
    assert [entry for entry, _ in found] == states and machine.asked[-1] == ("must work", "sum")


def test_a_log_of_another_target_is_not_gone_on_with(tmp_path: Path) -> None:
    log = tmp_path / "0000_net.json"
    _check_target(log, "k", "cuda")  # it is not there yet
    log.write_bytes(record_line("k", 1.0) + b"\n" + record_line("other", 1.0, target="cuda") + b"\n{half")
    _check_target(log, "k", "llvm")
    _check_target(log, "new", "cuda")
    with pytest.raises(LogError, match=r"0000_net\.json: .*'llvm', and this run is for 'cuda': .*--out"):
        _check_target(log, "k", "cuda")


OURS = {"id": 3, "network": "net", "workload_key": "k", "log": "0003_net.json"}


def test_the_rows_of_earlier_runs_are_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "workloads.json.gz"
    assert _earlier_rows(path) == {}
    second = {**OURS, "id": 4, "log": "0004_net.json"}  # another task of the same workload
    write_rows(path, [OURS, second])
    assert _earlier_rows(path) == {"0003_net.json": OURS, "0004_net.json": second}


@pytest.mark.parametrize(
    "row",
    [
        {"workload_key": "k"},
        {**OURS, "log": None},
        {**OURS, "log": "0003_net.json.gz"},
        {**OURS, "id": "3"},
        {**OURS, "log": ["0003_net.json"]},
    ],
)
def test_the_workloads_of_somebody_else_are_not_replaced(row, tmp_path: Path) -> None:
    path = tmp_path / "workloads.json.gz"
    write_rows(path, [OURS, row])
    with pytest.raises(DatasetError, match=r"workloads\.json\.gz .*row 1 .*move it elsewhere.*another --out"):
        _earlier_rows(path)


def test_a_damaged_workloads_file_of_an_earlier_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "workloads.json.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff")
    with pytest.raises(DatasetError, match=r"workloads\.json\.gz: not a readable workload file"):
        _earlier_rows(path)
