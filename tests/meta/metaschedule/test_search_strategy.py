"""The search in the model on a GPU: schedules that TVM has not made are read as it would make them."""

from __future__ import annotations

import json
import logging

import numpy as np
import programs as P
import pytest
from drawn import SMALL, begun, context, draws_of, few, rows_of
from stock_spaces import cuda_source
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from benchmarks.tune.meta import simulated, workloads
from data_builder.metaschedule.sampling import TraceSampler
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.native.library import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.search_strategy import drawn_search
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.metaschedule.workload import workload_of
from wmsched.search.decision_space import DecisionSpace
from wmsched.toolchain.targets import target_text

FOLLOWED = ("conv2d-pad-relu", "depthconv", "conv3d", "ffn", "fully-connected", "attention-qk")
FOLLOWED += ("softmax", "layernorm-variance", "maxpool2d", "avgpool2d")  # without tiles: threads are chosen


@pytest.fixture(scope="module")
def target():
    found = Target(P.GPUS["RTX 4090"])
    import_intrinsics(found)
    return found


def spaces_of(func, target):
    ctx = context(func, target, "evolutionary")
    return ctx, [design.trace for design in ctx.generate_design_space()]


@pytest.mark.parametrize("kind", FOLLOWED)
def test_schedules_are_read_as_tvm_s_postprocessors_leave_them(kind, target) -> None:
    """Columns and families of random decisions, most of them beyond what a block may have, are the same."""
    ctx, traces = spaces_of(workloads.module(kind), target)
    rules = [
        rule for rule in ctx.space_generator.postprocs if not isinstance(rule, ms.postproc.VerifyGPUCode)
    ]
    made, which, rows = [], [], []
    for number, trace in enumerate(traces):
        space = DecisionSpace(trace_json(trace))
        for seed in range(1, 5):
            schedule = Schedule(ctx.mod, seed=seed + 10 * number)
            Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            rows.append(space.row_of(trace_json(schedule.trace)))
            which.append(number)
            schedule.enter_postproc()
            assert all(rule.apply(schedule) for rule in rules)
            made.append(ms.MeasureCandidate(schedule, []))
    reader = TraceReader(library(), workload_of(ctx.mod, target_text(target)))
    theirs, ours = reader(made), reader.drawn(traces, which, rows)
    assert ours.fine.all() and (ours.stages == theirs.stages).all()
    np.testing.assert_array_equal(ours.columns, theirs.columns)
    assert ours.families(range(len(rows))) == theirs.families(range(len(rows)))
    assert len(set(ours.keys())) == len(set(zip(which, rows)))


def test_what_does_not_go_with_the_trace_is_not_read(target) -> None:
    ctx, traces = spaces_of(P.matmul(), target)
    reader = TraceReader(library(), workload_of(ctx.mod, target_text(target)))
    row = DecisionSpace(trace_json(traces[0])).random(1, np.random.default_rng(1))[0]
    assert reader.drawn(traces, [0, 0, 0], [row, row[:-1], (*row, 1)]).fine.tolist() == [True, False, False]
    assert reader.drawn(traces, [len(traces)], [row]).fine.tolist() == [False]
    assert len(reader.drawn(traces, [], []).stages) == 0


def test_new_schedules_each_round_and_none_beyond_the_trials(target) -> None:
    model = WorldModelCostModel("cuda-meta", round_size=8)
    ctx, strategy = begun(P.conv(), target, model, trials=20)
    spaces = draws_of(ctx)
    seen = []
    for count in (8, 8, 4):
        candidates = ctx.generate_measure_candidates()
        assert len(candidates) == count
        seen += rows_of(spaces, candidates)
        strategy.notify_runner_results(candidates, [ms.runner.RunnerResult([1e-3], None) for _ in candidates])
        model.update(ctx, candidates, [ms.runner.RunnerResult([1e-3], None) for _ in candidates])
    assert len(set(seen)) == 20
    assert ctx.generate_measure_candidates() is None
    assert model.problems == {}


def test_it_finds_better_ones_than_it_draws(target) -> None:
    """By the model's own scores: what it proposes is above nearly all of what is drawn."""
    model = WorldModelCostModel("cuda-meta", round_size=8, diversity=0.0)
    ctx, _ = begun(P.conv(), target, model)
    proposed = ctx.generate_measure_candidates()
    _, traces = spaces_of(P.conv(), target)
    scores = model.scores(ctx)
    spaces = [DecisionSpace(trace_json(trace)) for trace in traces]
    rng = np.random.default_rng(7)
    which, rows = zip(*((k, row) for k, space in enumerate(spaces) for row in space.random(60, rng)))
    read = scores.reader.drawn(traces, which, rows)
    random_ones = scores.shared([key for key in scores.take(read, read.fine) if key is not None])
    assert np.median(model.predict(ctx, proposed)) > np.quantile(random_ones, 0.95)


def test_every_candidate_becomes_cuda(target) -> None:
    """A kernel each, whose source TVM writes without a GPU."""
    model = WorldModelCostModel("cuda-meta", round_size=8)
    ctx, _ = begun(workloads.module("attention-qk"), target, model)
    for candidate in ctx.generate_measure_candidates():
        assert "__global__" in cuda_source(candidate.sch.mod, target)


def test_what_the_database_has_is_not_proposed_again(target, tmp_path) -> None:
    model = WorldModelCostModel("cuda-meta", round_size=8)
    first, _ = begun(P.conv(), target, model)
    candidates = first.generate_measure_candidates()
    spaces = draws_of(first)
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(first.mod)
    for n, candidate in enumerate(candidates):
        seconds = [1e-3 * (1 + n)] if n else [1e10]  # the first failed
        database.commit_tuning_record(
            ms.database.TuningRecord(candidate.sch.trace, workload, seconds, target, candidate.args_info)
        )
    again, _ = begun(P.conv(), target, WorldModelCostModel("cuda-meta", round_size=8), database=database)
    known = set(rows_of(spaces, candidates))
    assert known.isdisjoint(rows_of(spaces, again.generate_measure_candidates()))


def test_the_same_seed_proposes_the_same(target) -> None:
    proposed = []
    for _ in range(2):
        ctx, _ = begun(P.conv(), target, WorldModelCostModel("cuda-meta", round_size=8))
        spaces = draws_of(ctx)
        proposed.append(rows_of(spaces, ctx.generate_measure_candidates()))
    assert proposed[0] == proposed[1]


def test_spaces_that_are_not_followed_are_tvm_s(target, caplog, monkeypatch) -> None:
    """As a TVM would be whose postprocessors do other things."""
    asked = []

    def stock(designs):
        asked.append(len(designs))
        return ms.search_strategy.EvolutionarySearch(population_size=16, init_min_unmeasured=4)

    read = TraceReader.drawn

    def otherwise(self, *given):
        found = read(self, *given)
        found.columns[-1, self.names.index("steps")] += 1
        return found

    monkeypatch.setattr(TraceReader, "drawn", otherwise)
    model = WorldModelCostModel("cuda-meta", round_size=4)
    with caplog.at_level(logging.WARNING):
        ctx, _ = begun(P.matmul(), target, model, count=4, stock=stock)
        assert ctx.generate_measure_candidates()
    assert len(asked) == 1 and not caplog.records and model.problems == {}


def test_a_small_space_is_used_up(target) -> None:
    """Every schedule of it once, and then none: the search ends where there is nothing left."""
    model = WorldModelCostModel("cuda-meta", round_size=64)
    ctx, strategy = begun(P.constant(), target, model, count=64, stock=lambda designs: 1 / 0)
    spaces = draws_of(ctx)
    seen = []
    while (candidates := ctx.generate_measure_candidates()) is not None:
        seen += rows_of(spaces, candidates)
        strategy.notify_runner_results(candidates, [ms.runner.RunnerResult([1e-3], None) for _ in candidates])
    assert 0 < len(seen) == len(set(seen)) <= 64


def test_tvm_takes_over_where_the_search_fails(target, caplog, monkeypatch) -> None:
    model = WorldModelCostModel("cuda-meta", round_size=4)
    ctx, _ = begun(P.matmul(), target, model, count=4, stock=few)
    monkeypatch.setattr(DecisionSpace, "random", lambda *given: 1 / 0)
    with caplog.at_level(logging.WARNING):
        candidates = ctx.generate_measure_candidates()
    assert candidates and "ZeroDivisionError" in caplog.text
    ctx.search_strategy.notify_runner_results(
        candidates, [ms.runner.RunnerResult([1e-3], None) for _ in candidates]
    )
    ctx.post_tuning()


def test_without_the_cpp_reader_tvm_searches(target) -> None:
    model = WorldModelCostModel("cuda-meta", round_size=4, native=False)
    ctx, _ = begun(P.matmul(), target, model, count=4, stock=few)
    assert ctx.generate_measure_candidates()


def test_a_whole_run_of_tune_tir(target, tmp_path) -> None:
    """Rounds, database and callbacks are MetaSchedule's; the strategy is cloned by it."""
    P.fresh_loggers()
    mod = P.module(P.conv())
    builder, runner = simulated.machine(simulated.timing("model", mod, target))
    model = WorldModelCostModel("cuda-meta", round_size=8)
    database = ms.tune_tir(
        mod,
        target,
        str(tmp_path),
        20,
        num_trials_per_iter=8,
        builder=builder,
        runner=runner,
        cost_model=model,
        strategy=drawn_search(model, evolution=SMALL),
        num_tuning_cores=1,
        seed=2,
    )
    lines = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    traces = [json.dumps(json.loads(line)[1][0]) for line in lines]
    assert len(database) == len(set(traces)) == 20
    assert model.problems == {}


@pytest.mark.parametrize("guided", [False, True])
def test_collectors_draw_too(target, guided, monkeypatch) -> None:
    """Different schedules that a block can hold, without TVM's search."""
    if guided:
        monkeypatch.setattr(ms.search_strategy, "EvolutionarySearch", lambda **how: 1 / 0)
    else:
        monkeypatch.setattr(ms.TuneContext, "generate_measure_candidates", lambda self: 1 / 0)
    model = WorldModelCostModel("cuda-meta", round_size=8)
    sampler = TraceSampler(P.module(P.conv()), target, measured=set(), cost_model=lambda: model)
    found = sampler.next(12, guided=guided, seed=4)
    assert len({json.dumps(steps) for _, steps in found}) == 12
    verify = ms.postproc.VerifyGPUCode()
    verify._initialize_with_tune_context(context(P.conv(), target, "replay-trace"))
    assert all(verify.apply(candidate.sch) for candidate, _ in found)
