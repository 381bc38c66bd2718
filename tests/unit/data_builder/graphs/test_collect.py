"""Collecting graphs: steps in order, what is there is not made again, and a failed graph ends no other."""

from __future__ import annotations

import numpy as np
import pytest

from data_builder.graphs import collect as module
from data_builder.graphs.collect import GraphOptions, collect
from data_builder.graphs.encoding import Node, encode
from data_builder.graphs.job import Job, Plan, Timing


class Told:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[str] = []

    def start(self, what: str, total: int, done: int) -> None:
        self.started = (total, done)

    def step(self, kind: str = "ok") -> None:
        self.steps.append(kind)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def steps(monkeypatch):
    done: list[tuple[str, str]] = []

    def step(what, job, number, target, report) -> int:
        done.append((what, job.name))
        if job.name == "bad-0":
            return 1
        if what == "build":
            job.begin()
            plan = Plan([["kernel", "direct"]], [], [(0,), (1,)], ["direct: off"], [])
            job.write(plan, encode([Node(121, (), (), 4)], [0]), [])
        else:
            job.add(Timing(np.array([1e-3, 2e-3]), np.zeros(0)))
        return 0

    monkeypatch.setattr(module, "_step", step)
    return done


def test_steps_are_made_once(tmp_path, steps) -> None:
    told, names = Told(), ["a-0", "bad-0", "b-0"]
    counts = collect(names, tmp_path, GraphOptions(build_only=True), told)
    assert counts == {"done": 0, "built": 2, "failed": 1, "left": 0}
    counts = collect(names, tmp_path, GraphOptions(timings=2), told)
    assert counts == {"done": 2, "built": 0, "failed": 1, "left": 0}
    assert steps.count(("build", "a-0")) == 1 and steps.count(("time", "a-0")) == 2
    assert told.started == (3, 0) and told.steps == ["failed", "ok", "failed", "ok"]
    assert "a-0: refused: direct: off" in told.notes and Job(tmp_path, "a-0").is_done
    steps.clear()
    assert collect(["a-0", "b-0"], tmp_path, GraphOptions(), told)["done"] == 2 and not steps
    assert told.started == (2, 2)


def test_after_its_minutes_no_step_begins(tmp_path, steps, monkeypatch) -> None:
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    counts = collect(["a-0", "b-0"], tmp_path, GraphOptions(minutes=1), Told())
    assert counts == {"done": 0, "built": 1, "failed": 0, "left": 1} and steps == [("build", "a-0")]
    counts = collect(["a-0", "b-0"], tmp_path, GraphOptions(time_only=True), Told())
    assert counts == {"done": 1, "built": 0, "failed": 0, "left": 1} and ("build", "b-0") not in steps
