"""The cost-model contract, asked from TVM's side: what Ansor calls, with models that behave and models
that do not."""

from __future__ import annotations

import logging
import math
from collections import Counter
from zlib import crc32

import numpy as np
import orjson
import pytest
from stand_in import StandIn, vector_length
from tvm import auto_scheduler
from tvm.auto_scheduler import _ffi_api as ffi

from wmsched.ansor import cost_model
from wmsched.ansor.task_scheduler import WorldModelCostModel
from wmsched.base.errors import BundleError
from wmsched.search.diversity import signature
from wmsched.search.selection import NEUTRAL

SMALL = {"evolutionary_search_population": 128, "sample_init_min_population": 40}


def steps_of(task, state):
    blank = auto_scheduler.MeasureResult([0.0], 0, "", 0.0, 0.0)
    line = auto_scheduler.measure_record.dump_record_to_string(
        auto_scheduler.MeasureInput(task, state), blank
    )
    return orjson.loads(str(line))["i"][1][1]


def through_tvm(model, task, states) -> np.ndarray:
    """Scores as the C++ side receives them."""
    return np.array([score.value for score in ffi.CostModelPredict(model, task, states)])


def search(task, model, *, out: int = 16, seed: int = 7) -> list:
    """A whole evolutionary search of Ansor's, without measuring."""
    policy = auto_scheduler.SketchPolicy(task, model, params=dict(SMALL), seed=seed, verbose=0)
    return list(policy.evolutionary_search(policy.sample_initial_population(), out))


def test_scores_reach_tvm_in_the_models_order(matmul, states) -> None:
    got = through_tvm(WorldModelCostModel(StandIn(), diversity=0), matmul, states)
    liked = np.array([vector_length(steps_of(matmul, state)) for state in states])
    assert ((got > 0) & (got <= 1)).all()
    ordered = got[np.argsort(liked, kind="stable")]
    assert (np.diff(ordered) >= 0).all() and got.max() > got.min()
    assert ((got[:, None] > got) == (liked[:, None] > liked)).all()


@pytest.mark.parametrize(
    "prefer", [lambda s: -1e3 - vector_length(s), lambda s: -5.0], ids=["margins", "equal"]
)
def test_an_all_negative_batch_keeps_the_search_alive(matmul, states, prefer) -> None:
    model = WorldModelCostModel(StandIn(prefer))
    assert (through_tvm(model, matmul, states) > 0).all()
    found = search(matmul, model)
    assert len({str(state) for state in found}) == 16
    assert model.problems == {}


def test_a_search_finds_what_the_model_likes(matmul, states) -> None:
    liked = [
        vector_length(steps_of(matmul, state)) for state in search(matmul, WorldModelCostModel(StandIn()))
    ]
    by_chance = [vector_length(steps_of(matmul, state)) for state in states]
    assert np.median(liked) > np.quantile(by_chance, 0.95)


def test_an_empty_batch(matmul) -> None:
    model = WorldModelCostModel(StandIn())
    assert through_tvm(model, matmul, []).shape == (0,)
    assert model.predict_stages(matmul, []).shape == (0,)
    model.update([], [])
    ffi.CostModelUpdate(model, [], [])
    assert model.problems == {}


def test_a_nan_is_the_lowest_score_and_poisons_nobody(matmul, states) -> None:
    def prefer(steps):
        return math.nan if ["CHW", 2, "local"] in steps else vector_length(steps)

    got = through_tvm(WorldModelCostModel(StandIn(prefer)), matmul, states)
    liked = np.array([prefer(steps_of(matmul, state)) for state in states])
    assert np.isnan(liked).any() and np.isfinite(got).all()
    assert got[np.isnan(liked)].max() <= got[~np.isnan(liked)].min()
    found = search(matmul, WorldModelCostModel(StandIn(prefer)))
    assert not any(math.isnan(prefer(steps_of(matmul, state))) for state in found)


def test_nothing_but_nan_searches_at_random(matmul, states) -> None:
    model = WorldModelCostModel(StandIn(lambda steps: math.nan))
    assert (through_tvm(model, matmul, states) == NEUTRAL).all()
    assert len(search(matmul, model)) == 16


def raises(steps):
    raise RuntimeError("no opinion")


def test_a_model_that_always_raises_is_logged_once_and_neutral(matmul, states, caplog) -> None:
    model = WorldModelCostModel(StandIn(raises))
    with caplog.at_level(logging.WARNING, logger="wmsched"):
        assert (through_tvm(model, matmul, states) == NEUTRAL).all()
        assert len(search(matmul, model)) == 16
    assert (
        sum("no opinion" in record.message for record in caplog.records) == 2
    )  # a candidate, then the batch
    assert model.problems["scoring a batch: RuntimeError"] > 1


def test_a_model_that_raises_on_some_candidates_ranks_the_others(matmul, states, caplog) -> None:
    liked = np.array([vector_length(steps_of(matmul, state)) for state in states])
    odd = np.unique(liked)[-2]  # few candidates, near the top

    def prefer(steps):
        return raises(steps) if vector_length(steps) == odd else vector_length(steps)

    at_fault = liked == odd
    assert 0 < at_fault.sum() <= 8
    model = WorldModelCostModel(StandIn(prefer), diversity=0)
    got = through_tvm(model, matmul, states)
    assert (got[at_fault] <= got[~at_fault].min()).all()
    assert (
        (got[~at_fault][:, None] > got[~at_fault]) == (liked[~at_fault][:, None] > liked[~at_fault])
    ).all()
    assert model.problems == {"scoring a candidate: RuntimeError": int(at_fault.sum())}


def test_a_task_the_model_cannot_prepare(matmul, states, caplog) -> None:
    model = WorldModelCostModel(StandIn(fails="no such operator"))
    for _ in range(3):
        assert (through_tvm(model, matmul, states[:5]) == NEUTRAL).all()
    assert caplog.text.count("no such operator") == 1
    assert model.problems == {"preparing a task: RuntimeError": 1}


def test_scores_of_a_wrong_shape_are_no_scores(matmul, states) -> None:
    world = StandIn()
    model = WorldModelCostModel(world)
    model.predict(matmul, states[:1])
    world.scorer.score = lambda batch: np.zeros(len(batch) + 1)
    assert (through_tvm(model, matmul, states[1:9]) == NEUTRAL).all()
    assert any(kind.startswith("scoring a") for kind in model.problems)


def test_a_state_that_cannot_be_written_is_invalid(matmul, states) -> None:
    model = WorldModelCostModel(StandIn())
    got = model.predict(matmul, [*states[:3], None, *states[3:5]])
    assert got[3] == -np.inf and np.isfinite(np.delete(got, 3)).all()
    assert np.isfinite(model.predict(matmul, [None])).all()  # nothing but -inf would hang the search


def test_stage_scores_are_in_tvms_packed_form(matmul, states) -> None:
    model = WorldModelCostModel(StandIn())
    packed = model.predict_stages(matmul, states[:6])
    np.testing.assert_array_equal(packed[:6], model.predict(matmul, states[:6]))
    np.testing.assert_array_equal(packed[6:], 0)  # each state: no stage has a score of its own
    assert packed.size <= 6 * 2 * len(matmul.compute_dag.init_state.stages)  # the buffer TVM hands over


def test_a_candidate_is_scored_once_a_round_and_alike_in_all_its_batches(matmul, states) -> None:
    world = StandIn()
    model = WorldModelCostModel(world)
    together = model.predict(matmul, states[:60])
    again = model.predict(matmul, states[30:60])
    np.testing.assert_array_equal(together[30:], again)
    assert sum(world.scorer.batches) == len({str(steps_of(matmul, s)) for s in states[:60]})
    model.update([], [])
    model.predict(matmul, states[:10])
    assert sum(world.scorer.batches) > 60 - 10  # a new round asks anew


def result(cost: float, error: int = 0):
    return auto_scheduler.MeasureResult([cost], error, "boom" if error else "", 0.1, 0.0)


def test_online_learns_from_what_was_measured(matmul, states) -> None:
    world = StandIn()
    model = WorldModelCostModel(world, online=True)
    before = model.predict(matmul, states[:4])
    inputs = [auto_scheduler.MeasureInput(matmul, state) for state in states[:3]]
    ffi.CostModelUpdate(model, inputs, [result(0.25), result(1e10, 2), result(0.0)])
    steps, seconds = zip(*world.scorer.observed)
    assert list(steps) == [steps_of(matmul, state) for state in states[:3]]
    assert seconds[0] == 0.25 and math.isnan(seconds[1]) and math.isnan(seconds[2])
    assert model.predict(matmul, states[:4]).shape == before.shape
    assert world.scorer.batches == [4, 4]  # nothing was kept from before it learnt


def test_frozen_learns_nothing(matmul, states, tmp_path) -> None:
    world = StandIn()
    model = WorldModelCostModel(world)
    model.predict(matmul, states[:2])
    model.update([auto_scheduler.MeasureInput(matmul, states[0])], [result(0.5)])
    assert world.scorer.observed == []


def test_a_failing_update_does_not_end_the_search(matmul, states, caplog) -> None:
    world = StandIn()
    model = WorldModelCostModel(world, online=True)
    model.predict(matmul, states[:2])
    world.scorer.observe = lambda *_: raises(None)
    ffi.CostModelUpdate(model, [auto_scheduler.MeasureInput(matmul, states[0])], [result(0.5)])
    assert model.problems == {"learning from measurements: RuntimeError": 1}
    assert np.isfinite(model.predict(matmul, states[:2])).all()


def test_a_measurement_that_cannot_be_followed_loses_only_itself(matmul, states) -> None:
    world = StandIn()
    model = WorldModelCostModel(world, online=True)
    model.predict(matmul, states[:2])
    odd, scorer = steps_of(matmul, states[1]), world.scorer

    def rows(batch):
        if odd in list(batch):
            raise ValueError("no such loop")

    def observe(batch, seconds):
        rows(batch)
        scorer.observed.extend(zip(batch, seconds))

    scorer.rows, scorer.observe = rows, observe
    inputs = [auto_scheduler.MeasureInput(matmul, state) for state in states[:3]]
    model.update(inputs, [result(0.1), result(0.2), result(0.3)])
    assert [seconds for _, seconds in scorer.observed] == [0.1, 0.3]
    assert model.problems == {"learning from measurements: ValueError": 1}


def test_a_log_teaches_once_and_what_was_never_measured_nothing(matmul, states, tmp_path) -> None:
    log, world = tmp_path / "log.json", StandIn()
    inputs = [auto_scheduler.MeasureInput(matmul, state) for state in states[:3]]
    auto_scheduler.save_records(str(log), inputs, [result(0.1), result(0.0), result(1e10, 4)])
    model = WorldModelCostModel(world, online=True)
    model.predict(matmul, states[:1])
    for _ in range(2):
        model.update_from_file(log)
    first, failed = [seconds for _, seconds in world.scorer.observed]
    assert first == 0.1 and math.isnan(failed) and model.problems == {}


def test_a_log_is_learnt_before_its_task_is_met(matmul, states, tmp_path, caplog) -> None:
    log = tmp_path / "log.json"
    inputs = [auto_scheduler.MeasureInput(matmul, state) for state in states[:3]]
    auto_scheduler.save_records(str(log), inputs, [result(0.1), result(0.2), result(0.3)])
    good = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"# a comment\n" + good[0] + b'{"i": [[\n' + good[1] + b"\n" + good[2])
    world = StandIn()
    model = WorldModelCostModel(world, online=True)
    model.update_from_file(log)
    assert model.problems == {"log lines not read": 1} and f"{log}:3" in caplog.text
    model.predict(matmul, states[:1])
    assert [seconds for _, seconds in world.scorer.observed] == [0.1, 0.2, 0.3]
    fewer = WorldModelCostModel(StandIn(), online=True)
    fewer.update_from_file(log, n_lines=2)
    fewer.predict(matmul, states[:1])
    assert [seconds for _, seconds in fewer.world_model.scorer.observed] == [0.1, 0.2]


def test_saved_and_loaded_it_says_the_same(matmul, states, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        cost_model, "load_world_model", lambda model, **_: StandIn() if not hasattr(model, "task") else model
    )
    model = WorldModelCostModel(StandIn(), online=True)
    model.predict(matmul, states[:1])
    measured = [auto_scheduler.MeasureInput(matmul, state) for state in states[:2]]
    model.update(measured, [result(0.5), result(1e10, 4)])
    model.save(tmp_path / "bundle")
    other = WorldModelCostModel(StandIn(), online=True)
    other.load(tmp_path / "bundle")
    np.testing.assert_array_equal(other.predict(matmul, states), model.predict(matmul, states))
    seconds = [seconds for _, seconds in other.world_model.scorer.observed]
    assert seconds[0] == 0.5 and math.isnan(seconds[1])
    (tmp_path / "bundle" / cost_model.OBSERVATIONS).write_text('[{"task": 1}]')
    with pytest.raises(BundleError, match="delete it"):
        other.load(tmp_path / "bundle")


def test_diversity_brings_other_families_into_the_best(matmul) -> None:
    params = {**SMALL, "sample_init_min_population": 400}
    policy = auto_scheduler.SketchPolicy(
        matmul, auto_scheduler.RandomModel(), params=params, seed=3, verbose=0
    )
    candidates = list(policy.sample_initial_population())
    seen = Counter(signature(steps_of(matmul, state)) for state in candidates)
    (liked, count), *_ = seen.most_common(1)
    assert count >= 8

    def one_sided(steps) -> float:
        return crc32(orjson.dumps(steps)) / 2**32 + (signature(steps) == liked)

    def families(diversity: float) -> int:
        model = WorldModelCostModel(StandIn(one_sided), diversity=diversity, round_size=16)
        best = np.argsort(-model.predict(matmul, candidates), kind="stable")[:count]
        return len({signature(steps_of(matmul, candidates[place])) for place in best})

    assert families(0.0) == 1 < families(4.0)


def test_on_a_gpu_the_best_are_checked_against_the_devices_limits(matmul) -> None:
    limits = auto_scheduler.HardwareParams(
        num_cores=-1,
        vector_unit_bytes=16,
        cache_line_bytes=64,
        max_shared_memory_per_block=1024,  # so little that most tiles do not fit
        max_local_memory_per_block=2**31 - 1,
        max_threads_per_block=1024,
        max_vthread_extent=8,
        warp_size=32,
    )
    task = auto_scheduler.SearchTask(
        workload_key=matmul.workload_key, target="cuda -arch=sm_75", hardware_params=limits
    )
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.RandomModel(), params=dict(SMALL), seed=1, verbose=0
    )
    candidates = list(policy.sample_initial_population())
    assert np.isfinite(WorldModelCostModel(StandIn(), verify=False).predict(task, candidates)).all()
    got = WorldModelCostModel(StandIn(), round_size=4).predict(task, candidates)
    best = np.argsort(-got, kind="stable")[: min(8, int(np.isfinite(got).sum()))]
    assert (got == -np.inf).any() and len(best)
    chosen = [candidates[place] for place in best]
    for feature in auto_scheduler.feature.get_per_store_features_from_states(chosen, task):
        assert not feature.min() == feature.max() == 0


@pytest.mark.parametrize("options", [{"diversity": -1.0}, {"keep_per_family": 0}])
def test_meaningless_options_are_refused_at_once(options) -> None:
    with pytest.raises(ValueError, match="got"):
        WorldModelCostModel(StandIn(), **options)
