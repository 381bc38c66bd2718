"""WorldModelCostModel: TVM's own cost-model tests, its promises to the search, all stock spaces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import programs as P
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.schedule import Trace

from wmsched.backends.meta_schedule import WorldModelCostModel
from wmsched.backends.tir_workload import program_text, target_text, workload_of
from wmsched.backends.traces import steps_of_schedule, trace_json
from wmsched.codecs.trace import decode_steps, encode_actions, trace_of
from wmsched.errors import BundleError
from wmsched.hardware import hardware_features
from wmsched.ranker import Ranker, RankerConfig, RankGroup
from wmsched.rows import RowBuilder
from wmsched.world_model import WorldModel


class Scorer:
    """Scores by `prefer`; remembers what it was asked and what it observed."""

    def __init__(self, prefer) -> None:
        self.prefer, self.batches, self.observed = prefer, [], []

    def score(self, batch):
        self.batches.append(len(batch))
        return np.array([self.prefer(steps) for steps in batch], dtype=float)

    def observe(self, batch, seconds) -> None:
        self.observed.extend(zip(batch, seconds))


class StandIn:
    """Has the methods of a WorldModel that a backend calls."""

    def __init__(self, prefer=lambda steps: -1e6 - len(str(steps)), *, fails="") -> None:
        self.prefer, self.fails, self.scorers = prefer, fails, []

    def task(self, workload, s0_text):
        if self.fails:
            raise RuntimeError(self.fails)
        assert workload.stages and "T.sblock" in s0_text
        self.scorers.append(Scorer(self.prefer))
        return self.scorers[-1]


@pytest.fixture(scope="module")
def cpu():
    """A context of a matrix multiplication and eight of its candidates."""
    ctx = P.context(P.matmul(), P.CPU)
    return ctx, P.sampled(P.context(P.matmul(), P.CPU))


@pytest.fixture(scope="module")
def bundle(cpu, tmp_path_factory) -> Path:
    """A bundle without a state, trained on the candidates' traces."""
    ctx, candidates = cpu
    workload = workload_of(ctx.mod, target_text(ctx.target))
    steps = [steps_of_schedule(candidate.sch) for candidate in candidates]
    rows = RowBuilder(state="none").rows(
        workload, np.zeros(0, np.float32), hardware_features(workload), steps
    )
    seconds = np.arange(1.0, len(steps) + 1)
    ranker = Ranker.fit([RankGroup("mm", rows, seconds)], RankerConfig(rounds=8, threads=1))
    folder = tmp_path_factory.mktemp("bundles") / "mm"
    WorldModel(ranker, state="none").save_pretrained(folder)
    return folder


def dummies(count=4):
    return [ms.MeasureCandidate(Schedule(P.module(P.matmul())), []) for _ in range(count)]


# TVM's own tests of cost models (tests/python/s_tir/meta_schedule/test_meta_schedule_cost_model.py)


@pytest.mark.parametrize("online", [False, True])
def test_save_predict_load_predict(cpu, bundle, tmp_path, online) -> None:
    ctx, candidates = cpu
    model = WorldModelCostModel(bundle, online=online)
    model.update(ctx, candidates, [RunnerResult([1e-3 * (k + 1)], None) for k in range(len(candidates))])
    first = model.predict(ctx, candidates)
    path = str(tmp_path / "saved")
    model.save(path)
    again = model.predict(ctx, candidates)
    other = WorldModelCostModel(bundle, online=online)
    other.load(path)
    np.testing.assert_allclose(other.predict(ctx, candidates), first, rtol=1e-6)
    np.testing.assert_array_equal(first, again)
    assert model.problems == other.problems == {}
    assert (bundle / "config.json").is_file() and (Path(path) / "ranker.ubj").is_file()


def test_update_and_predict_of_dummies(bundle) -> None:
    ctx = P.context(P.matmul(), P.CPU)
    model = WorldModelCostModel(bundle, online=True)
    for results in ([RunnerResult([0.5], None)] * 4, [RunnerResult(None, "error")] * 4):
        model.update(ctx, dummies(), results)
        scores = model.predict(ctx, dummies())
        assert scores.shape == (4,) and ((scores > 0) & (scores <= 1)).all()
    model.update(ctx, [], [])
    assert model.predict(ctx, []).shape == (0,)
    assert model.problems == {}


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
    with pytest.raises((BundleError, ValueError, KeyError, LookupError, Exception), match="no-such-bundle"):
        WorldModelCostModel("no-such-bundle")


# Every stock space


SPACES = [
    ("matmul", P.matmul, P.CPU, "from-target"),
    ("conv", P.conv, P.CPU, "from-target"),
    ("softmax", P.softmax, P.CPU, "from-target"),
    ("vnni", P.vnni, P.VNNI, "from-target"),
    ("plain x86", P.matmul, {"kind": "llvm", "num-cores": 2}, "llvm"),
    ("cuda matmul", P.matmul, P.GPU, "cuda"),
    ("cuda conv", P.conv, P.GPU, "cuda"),
    ("cuda softmax", P.softmax, P.GPU, "cuda"),
    ("tensor core", lambda: P.matmul(64, dtype="float16"), P.GPU, "cuda-tensorcore"),
    ("tensor core int8", lambda: P.matmul(64, dtype="int8", out="int32"), P.GPU, "cuda-tensorcore"),
]


@pytest.mark.parametrize(
    ("func", "target", "space"), [row[1:] for row in SPACES], ids=[row[0] for row in SPACES]
)
def test_every_stock_space_is_encoded_and_scored(func, target, space, bundle) -> None:
    ctx = P.context(func(), target, space)
    candidates = P.sampled(ctx, 4)
    assert candidates
    workload = workload_of(ctx.mod, target_text(ctx.target))
    assert workload.flop_ct > 0 and any(stage.kind == "compute" for stage in workload.stages)
    assert workload == workload_of(ctx.mod, target_text(ctx.target))
    intrinsics: set[str] = set()
    for candidate in candidates:
        steps = steps_of_schedule(candidate.sch)
        trace = trace_json(candidate.sch.trace)
        assert trace_of(steps) == trace and json.loads(json.dumps(trace)) == trace
        intrinsics.update(row[2][0] for row in trace[0] if row[0] == "Tensorize")
        actions = decode_steps(steps, workload.stages)
        assert encode_actions(actions) == steps and all(action.text for action in actions)
        again = Schedule(ctx.mod)
        Trace.apply_json_to_schedule(trace_of(steps), again)
        # A database writes true as 1, and so do we.
        texts = [program_text(mod).replace(": True}", ": 1}") for mod in (again.mod, candidate.sch.mod)]
        assert texts[0] == texts[1]
    wanted = "wmma" if space == "cuda-tensorcore" else "dot_" if func is P.vnni else ""
    assert not wanted or any(wanted in name for name in intrinsics)
    model = WorldModelCostModel(bundle)
    scores = model.predict(ctx, candidates)
    assert ((scores > 0) & (scores <= 1)).all() and model.problems == {}
