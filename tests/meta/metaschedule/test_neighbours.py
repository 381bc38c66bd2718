"""A search begins with the best schedules of the nearest function that differs in extents alone."""

from __future__ import annotations

import programs as P
import pytest
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.target import Target

from wmsched.metaschedule.design_space import DrawnSpaces
from wmsched.metaschedule.neighbours import Neighbours
from wmsched.metaschedule.tasks import Task
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.toolchain.targets import meta_host_target


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(meta_host_target())


def recorded(database, mod, target, seconds):
    workload = database.commit_workload(mod)
    found = P.sampled(P.context(mod, target), count=len(seconds))
    for candidate, each in zip(found, seconds):
        entry = TuningRecord(candidate.sch.trace, workload, [each], target, candidate.args_info)
        database.commit_tuning_record(entry)
    return [trace_json(one.sch.trace) for one in found]


def test_the_fastest_of_the_nearest_measured_function_fit_another_extent(target) -> None:
    database = MemoryDatabase()
    large, small, other = (P.module(f) for f in (P.matmul(64), P.matmul(32), P.softmax()))
    traces = recorded(database, large, target, [3e-3, 1e-3, 2e-3])
    seeds = Neighbours([Task("large", large), Task("small", small), Task("other", other)], lambda: database)
    assert seeds(small) == [traces[1], traces[2]]
    assert seeds(large) == [] and seeds(other) == []  # not its own, and of nothing unlike it

    context = P.context(small, target)
    spaces = DrawnSpaces(context, context.generate_design_space())
    for trace in seeds(small):
        drawn = spaces.adapted(trace)
        assert drawn is not None and spaces.of(trace) != drawn
        assert spaces.candidate(drawn) is not None  # TVM makes it
