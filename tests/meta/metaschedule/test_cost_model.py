"""WorldModelCostModel: TVM's own cost-model tests and its promises to the search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import programs as P
import pytest
from scripted_model import StandIn
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult

from wmsched.base.errors import UnknownName
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.trace_reader import steps_of_schedule


def dummies(count=4):
    return [ms.MeasureCandidate(Schedule(P.module(P.matmul())), []) for _ in range(count)]


# TVM's own tests of cost models (tests/python/s_tir/meta_schedule/test_meta_schedule_cost_model.py), each for
# ours: save and load, a model as text, a context that says nothing, dummies, no features, reload, reupdate.


def results_of(count, *, seed=0):
    """As TVM's tests have them: four times of up to ten seconds each."""
    rng = np.random.default_rng(seed)
    return [RunnerResult([float(t) for t in rng.random(4) * 10 + 1e-6], None) for _ in range(count)]


@pytest.mark.parametrize("online", [False, True])
def test_save_predict_load_predict(cpu, bundle, tmp_path, online) -> None:
    ctx, candidates = cpu
    model = WorldModelCostModel(bundle, online=online)
    model.update(ctx, candidates, [RunnerResult([1e-3 * (k + 1)], None) for k in range(len(candidates))])
    path = str(tmp_path / "saved")
    model.save(path)
    first = model.predict(ctx, candidates)
    model.load(path)  # into itself, and into another
    np.testing.assert_array_equal(model.predict(ctx, candidates), first)
    other = WorldModelCostModel(bundle, online=online)
    other.load(path)
    np.testing.assert_array_equal(other.predict(ctx, candidates), first)
    assert model.problems == other.problems == {}
    assert (bundle / "config.json").is_file() and (Path(path) / "ranker.ubj").is_file()
    kept, again = (dict(m._observed.items()) for m in (model, other))
    assert kept == again and sum(map(len, kept.values())) == (len(candidates) if online else 0)


@pytest.mark.parametrize("online", [False, True])
def test_through_the_handle_that_the_search_has(cpu, bundle, tmp_path, online) -> None:
    """What TVM calls is not the Python object but its C++ half; empty batches are null pointers there."""
    ctx, candidates = cpu
    model = WorldModelCostModel(bundle, online=online)
    handle = ms.cost_model.CostModel  # its methods, of the C++ half
    handle.update(model, ctx, [], [])
    assert handle.predict(model, ctx, []).shape == (0,)
    first = handle.predict(model, ctx, candidates)
    np.testing.assert_array_equal(first, model.predict(ctx, candidates))
    handle.update(model, ctx, candidates, results_of(len(candidates)))
    handle.save(model, str(tmp_path / "saved"))
    before = handle.predict(model, ctx, candidates)
    handle.load(model, str(tmp_path / "saved"))
    after = handle.predict(model, ctx, candidates)
    np.testing.assert_array_equal(np.argsort(after), np.argsort(before))
    np.testing.assert_allclose(after, before, rtol=0.2)  # the scale is that of the first batch anew
    assert (np.abs(before - first).max() > 0) == online
    assert model.problems == {}


def test_as_text(bundle) -> None:
    """As any cost model written in Python: TVM 0.27 has no texts of their own for them any more."""

    @derived_object
    class Stock(ms.cost_model.PyCostModel):
        def predict(self, context, candidates):
            return np.zeros(len(candidates))

    assert str(WorldModelCostModel(bundle)) == str(Stock())


@pytest.mark.parametrize("online", [False, True])
def test_a_context_that_says_nothing(bundle, online) -> None:
    model = WorldModelCostModel(bundle, online=online)
    model.update(ms.TuneContext(), [], [])
    model.update(ms.TuneContext(), dummies(10), results_of(10))
    scores = model.predict(ms.TuneContext(), dummies(100))
    assert scores.shape == (100,) and len(set(scores)) == 1 and 0 < scores[0] <= 1
    assert sum(model.problems.values()) >= 1  # and it says that it could do nothing


@pytest.mark.parametrize("online", [False, True])
def test_a_program_without_features(bundle, online) -> None:
    ctx = P.context(P.constant(), P.CPU)
    model = WorldModelCostModel(bundle, online=online)
    candidate = ms.MeasureCandidate(Schedule(ctx.mod), [])
    model.update(ctx, [candidate], results_of(1))
    scores = model.predict(ctx, [candidate])
    assert scores.shape == (1,) and 0 < scores[0] <= 1 and model.problems == {}


@pytest.mark.parametrize("online", [False, True])
def test_update_and_predict_of_dummies(bundle, online) -> None:
    ctx = P.context(P.matmul(), P.CPU)
    model = WorldModelCostModel(bundle, online=online)
    for results in ([RunnerResult([0.5], None)] * 4, [RunnerResult(None, "error")] * 4, results_of(4)):
        model.update(ctx, dummies(), results)
        scores = model.predict(ctx, dummies(100))
        assert scores.shape == (100,) and ((scores > 0) & (scores <= 1)).all()
    model.update(ctx, [], [])
    assert model.predict(ctx, []).shape == (0,)
    assert model.problems == {}


def test_the_same_bundle_twice_gives_the_same(cpu, bundle) -> None:
    ctx, candidates = cpu
    one, two = (WorldModelCostModel(bundle).predict(ctx, candidates) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_reupdate_and_many_rounds(cpu, bundle) -> None:
    ctx, candidates = cpu
    model = WorldModelCostModel(bundle, online=True)
    for _ in range(3):
        model.update(ctx, candidates, [RunnerResult([1.0, float("nan")], None)] * len(candidates))
        model.update(ctx, candidates, [RunnerResult([1e10], None)] * len(candidates))
        assert np.isfinite(model.predict(ctx, candidates)).all()
    assert model.problems == {}


# What the search relies on


def test_scores_are_positive_finite_and_in_the_models_order(cpu) -> None:
    ctx, candidates = cpu
    for prefer in (
        lambda steps: -1e6 - len(str(steps)),
        lambda steps: 0.0,
        lambda steps: 1e300 * len(str(steps)),
    ):
        model = WorldModelCostModel(StandIn(prefer))
        scores = model.predict(ctx, candidates)
        assert scores.dtype == np.float64 and np.isfinite(scores).all()
        assert ((scores > 0) & (scores <= 1)).all()
        raw = np.array([prefer(steps_of_schedule(c.sch)) for c in candidates])
        order = np.argsort(raw, kind="stable")
        assert (np.diff(scores[order]) >= 0).all()
        assert model.problems == {}


def test_the_same_candidate_keeps_its_score_in_every_batch(cpu) -> None:
    ctx, candidates = cpu
    stand_in = StandIn()
    model = WorldModelCostModel(stand_in)
    first = model.predict(ctx, candidates)
    np.testing.assert_array_equal(model.predict(ctx, candidates[::-1])[::-1], first)
    np.testing.assert_array_equal(model.predict(ctx, candidates[:2]), first[:2])
    (scorer,) = stand_in.scorers
    assert sum(scorer.batches) <= len(candidates)  # none asked for twice


def test_what_fails_ranks_last_and_is_counted(cpu) -> None:
    ctx, candidates = cpu
    worst = steps_of_schedule(candidates[0].sch)

    def prefer(steps):
        if steps == worst:
            raise RuntimeError("this one")
        return float(len(str(steps)))

    model = WorldModelCostModel(StandIn(prefer))
    scores = model.predict(ctx, [*candidates, *dummies(1)])
    assert np.isfinite(scores).all() and (scores > 0).all()
    assert scores[0] == scores.min()
    assert model.problems["scoring a candidate: RuntimeError"] >= 1
    dead = WorldModelCostModel(StandIn(fails="no such task"))
    assert len(set(dead.predict(ctx, candidates))) == 1
    assert dead.problems == {"preparing a task: RuntimeError": 1}


def test_only_an_online_model_observes(cpu) -> None:
    ctx, candidates = cpu
    results = [
        RunnerResult([2e-3, 4e-3], None),
        RunnerResult(None, "boom"),
        RunnerResult([float("nan")], None),
    ]
    for online in (False, True):
        stand_in = StandIn()
        model = WorldModelCostModel(stand_in, online=online)
        model.predict(ctx, candidates)
        model.update(ctx, candidates[:3], results)
        seconds = [seconds for _, seconds in stand_in.scorers[0].observed]
        if online:
            np.testing.assert_allclose(seconds, [3e-3, np.nan, np.nan])
        else:
            assert seconds == []


def test_a_missing_bundle_is_told_at_once() -> None:
    with pytest.raises(UnknownName, match="no-such-bundle"):
        WorldModelCostModel("no-such-bundle")
