"""Candidates read line by line are the candidates read from their traces' JSON."""

from __future__ import annotations

import orjson
import programs as P
import pytest
from tvm.s_tir import Schedule

from wmsched.metaschedule import trace_reader
from wmsched.metaschedule.trace_reader import StepsReader, steps_of_schedule


@pytest.mark.parametrize(
    ("program", "target"),
    [
        (P.conv, P.CPU),
        (P.softmax, P.CPU),
        (P.vnni, P.VNNI),
        pytest.param(P.matmul, P.GPU, marks=pytest.mark.slow),
    ],
)
def test_the_same_steps(program, target) -> None:
    candidates = P.sampled(P.context(program(), target), 12)
    plain = [steps_of_schedule(candidate.sch) for candidate in candidates]
    read = StepsReader()
    for _ in range(2):  # with every line unknown, then known
        found = [read(candidate.sch) for candidate in candidates]
        assert list(map(orjson.dumps, found)) == list(map(orjson.dumps, plain))
    assert len(read._known) > 10


def test_new_numbers_of_variables_and_new_index_maps_need_no_json(monkeypatch) -> None:
    candidates = P.sampled(P.context(P.conv(), P.CPU), 40)
    plain = [steps_of_schedule(candidate.sch) for candidate in candidates]
    maps = {row[1][1] for steps in plain for step in steps for row in step[1] if row[0] == "TransformLayout"}
    assert len(maps) > 10
    read, calls = StepsReader(), []
    whole = trace_reader.trace_json
    monkeypatch.setattr(trace_reader, "trace_json", lambda trace: calls.append(trace) or whole(trace))
    assert [read(candidate.sch) for candidate in candidates] == plain
    assert len(calls) < 20


def test_known_lines_need_no_json_and_are_forgotten_in_time(monkeypatch) -> None:
    candidates = P.sampled(P.context(P.matmul(), P.CPU), 8)
    read = StepsReader()
    before = [read(candidate.sch) for candidate in candidates]
    calls = []
    monkeypatch.setattr(trace_reader, "trace_json", lambda trace: calls.append(trace) or [[], []])
    assert [read(candidate.sch) for candidate in candidates] == before and calls == []
    monkeypatch.undo()
    monkeypatch.setattr(trace_reader, "MAX_KNOWN", 0)
    other = Schedule(P.module(P.softmax()))
    assert read(other) == steps_of_schedule(other)
    assert read(candidates[0].sch) == before[0]


def test_a_schedule_without_a_trace_is_refused() -> None:
    class Bare:
        trace = None

    with pytest.raises(ValueError, match="no trace"):
        StepsReader()(Bare())
