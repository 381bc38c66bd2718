"""A database of made-up times that the collector wrote, and what it said meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import programs as P
from tvm.target import Target

from data_builder.collect.collect import CollectOptions
from data_builder.collect.measure import MeasureOptions
from data_builder.metaschedule.collect import collect_traces
from data_builder.metaschedule.measure import MetaMeasurer
from data_builder.metaschedule.programs import Program
from data_builder.read.databases import RECORDS

TARGET = json.dumps(P.CPU)
PROGRAMS = [
    (0, Program("tiny", "dense", ("dense", (16, 24, 32)))),
    (1, Program("tiny", "softmax", ("softmax", (16, 32)))),
]


class Told:
    def __init__(self) -> None:
        self.notes, self.problems, self.steps = [], [], 0

    def note(self, text):
        self.notes.append(text)

    def problem(self, text):
        self.problems.append(text)

    def start(self, what, total, done):
        self.started = (what, total, done)

    def step(self, kind="ok"):
        self.steps += 1


def collect(out, trials, *, told=None, faulty=False, cost_model="none"):
    measurer = MetaMeasurer(
        MeasureOptions(), Target(P.CPU), builder=P.NoBuilder(), runner=P.NoRunner(faulty=faulty)
    )
    options = CollectOptions(trials=trials, batch=3, target=TARGET, cost_model=cost_model, mix=(2, 1))
    return collect_traces(PROGRAMS, out, options, told or Told(), measurer=measurer)


def twelve_records(out: Path) -> Path:
    """Six records of each of two programs, collected in two runs with a kill between."""
    out.mkdir()
    first = collect(out, 4)
    assert first == {"tasks": 2, "records": 8, "measured": 8, "failed": 0, "unfinished": 0}
    path = out / RECORDS
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])  # killed while it wrote the last record
    told = Told()
    again = collect(out, 6, told=told)
    assert again["records"] == 12 and again["measured"] == 5
    assert any("never finished" in note for note in told.notes)
    assert path.read_bytes().startswith(whole[: whole[:-40].rfind(b"\n") + 1])  # nothing done was lost
    return out
