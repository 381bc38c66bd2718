"""The search in the model within `TaskScheduler`: TVM replays what it chooses, logs and callbacks hear."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest
from stand_in import StandIn, vector_length
from tvm import auto_scheduler
from tvm.auto_scheduler import measure

from wmsched.ansor import callbacks, search_policy
from wmsched.ansor.compute_dag import task_from_row
from wmsched.ansor.search_policy import SearchPolicy
from wmsched.ansor.task_scheduler import TaskScheduler, WorldModelCostModel
from wmsched.base.errors import WmschedError
from wmsched.schedules.steps import parse_record
from wmsched.search import failure_budget
from wmsched.search.evolution import Evolution, key_of
from wmsched.search.mutations import Mutations
from wmsched.search.register_tiles import register_tile

pytestmark = pytest.mark.usefixtures("processes")
FEW = {"evolutionary_search_population": 256, "evolutionary_search_num_iters": 3}


class Heard(auto_scheduler.measure.PythonBasedMeasureCallback):
    """Keeps what a callback is told."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple] = []

    def callback(self, policy, inputs, results) -> None:
        self.batches.append((policy, list(inputs), list(results)))


def options(log, trials: int, *, heard=None, per_round: int = 8, builder=None):
    return auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=per_round,
        builder=builder or auto_scheduler.LocalBuilder(timeout=30, n_parallel=1),
        runner=auto_scheduler.LocalRunner(timeout=30, number=1, repeat=1, min_repeat_ms=1),
        measure_callbacks=[auto_scheduler.RecordToFile(str(log)), *([heard] if heard else [])],
        verbose=0,
    )


def broken_builder():
    """A builder that builds nothing, as without a compiler."""

    def broken(output, files, **kwargs):
        raise RuntimeError("no such compiler")

    broken.output_format = "tar"
    return auto_scheduler.LocalBuilder(timeout=30, n_parallel=1, build_func=broken)


def innermost(steps) -> int:
    """The longest innermost part of a split."""
    return max(step[4][-1] for step in steps if step[0] == "SP")


def scheduler(task, world=None, **more):
    return TaskScheduler([task], callbacks=[], cost_model=world or StandIn(), seed=3, **more)


@pytest.fixture(scope="module")
def tuned(matmul, tmp_path_factory):
    log = tmp_path_factory.mktemp("steps") / "log.json"
    heard, world = Heard(), StandIn()
    tuner = scheduler(matmul, world, online=True)
    tuner.tune(options(log, 16, heard=heard), search_policy_params=dict(FEW))
    return log, tuner, heard, world


def test_two_rounds_are_measured_logged_and_learnt_from(tuned) -> None:
    log, tuner, heard, world = tuned
    assert all(isinstance(policy, SearchPolicy) for policy in tuner.search_policies)
    records = [parse_record(line) for line in log.read_text().splitlines()]
    assert len({key_of(record.steps) for record in records}) == len(records) == 16
    assert tuner.best_costs[0] == pytest.approx(min(r.measurement.seconds for r in records), rel=1e-4)
    assert tuner.cost_model.problems == {}
    assert [len(inputs) for _, inputs, _ in heard.batches] == [len(r) for _, _, r in heard.batches]
    assert sum(len(inputs) for _, inputs, _ in heard.batches) == 16
    assert {type(policy) for policy, _, _ in heard.batches} == {SearchPolicy}
    assert [key_of(steps) for steps, _ in world.scorer.observed] == [key_of(r.steps) for r in records]


def test_what_is_chosen_is_what_the_model_likes_best(tuned, states, matmul) -> None:
    """Long innermost lengths: longer than any random schedule has them."""
    log, _, _, _ = tuned
    chosen = [vector_length(parse_record(line).steps) for line in log.read_text().splitlines()]
    drawn = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, seed=1)
    assert max(chosen) >= max(vector_length(drawn._steps(state)) for state in states)


def test_tvm_replays_nearly_all_that_is_chosen(matmul, pointwise, target) -> None:
    for task in (matmul, task_from_row(pointwise, target=target)):
        search = SearchPolicy(task, WorldModelCostModel(StandIn()), None, None, seed=2, params=FEW)
        replayed = [search._input(steps) is not None for _, steps in search.evolve()[:200]]
        assert sum(replayed) > 0.9 * len(replayed)


@pytest.mark.slow
def test_tvm_replays_schedules_with_fewer_parallel_loops(matmul, pointwise, target) -> None:
    for task in (matmul, task_from_row(pointwise, target=target)):
        search = SearchPolicy(task, WorldModelCostModel(StandIn()), None, None, seed=3)
        mutate = Mutations(random.Random(3))
        found = [steps for steps in map(mutate._parallel, search._draw(64)) if steps is not None]
        assert found and all(search._input(steps) is not None for steps in found)


def test_later_rounds_draw_a_quarter_anew(matmul) -> None:
    search = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, seed=1, params=FEW)
    first, second, third = ([key_of(steps) for steps in search._draw(256)] for _ in range(3))
    assert 128 < len(first) <= len(second) <= len(third) <= 256  # TVM leaves out what it cannot bound
    for before, after in ((first, second), (second, third)):
        new = set(after) - set(before)
        assert 16 < len(new) <= 64
    assert set(third) - set(second) - set(first)


def test_a_run_goes_on_from_its_log(tuned, matmul, tmp_path) -> None:
    log = tmp_path / "log.json"
    log.write_bytes(tuned[0].read_bytes())
    tuner = scheduler(matmul, load_log_file=str(log))
    tuner.tune(options(log, 8), search_policy_params=dict(FEW))
    programs = [key_of(parse_record(line).steps) for line in log.read_text().splitlines()]
    assert len(set(programs)) == len(programs) == 24


def test_where_it_fails_tvm_searches(matmul, tmp_path, monkeypatch, caplog) -> None:
    def fails(*_):
        raise RuntimeError("no mutation today")

    monkeypatch.setattr(search_policy.Mutations, "__call__", fails)
    log, heard = tmp_path / "log.json", Heard()
    tuner = scheduler(matmul)
    with caplog.at_level(logging.WARNING, logger="wmsched"):
        tuner.tune(options(log, 16, heard=heard), search_policy_params=dict(FEW))
    assert len(log.read_text().splitlines()) == 16
    assert sum("no mutation today" in record.message for record in caplog.records) == 1
    assert sum(len(inputs) for _, inputs, _ in heard.batches) == 16


def test_where_tvm_refuses_what_is_chosen_it_searches(matmul, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(SearchPolicy, "_input", lambda self, steps: None)
    log = tmp_path / "log.json"
    with caplog.at_level(logging.WARNING, logger="wmsched"):
        scheduler(matmul).tune(options(log, 8), search_policy_params=dict(FEW))
    assert len(log.read_text().splitlines()) == 8
    assert "TVM refuses the best 65 of" in caplog.text


def test_where_nothing_runs_it_says_why_once_and_goes_on(matmul, tmp_path, caplog) -> None:
    log = tmp_path / "log.json"
    with caplog.at_level(logging.WARNING, logger="wmsched"):
        scheduler(matmul).tune(options(log, 16, builder=broken_builder()), search_policy_params=dict(FEW))
    assert len(log.read_text().splitlines()) == 16
    (told,) = (record.message for record in caplog.records if "has run" in record.message)
    assert "none of the 8 programs" in told and "no such compiler" in told


def test_where_a_callback_is_not_known_tvm_searches(matmul, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(callbacks, "_logs", {})
    given = options(tmp_path / "log.json", 8)
    callbacks._logs.clear()
    tuner = scheduler(matmul)
    with caplog.at_level(logging.WARNING, logger="wmsched"):
        tuner.tune(given, search_policy_params={**FEW, "sample_init_min_population": 30})
    assert not any(isinstance(policy, SearchPolicy) for policy in tuner.search_policies)
    assert "a measure callback is not known" in caplog.text
    assert len((tmp_path / "log.json").read_text().splitlines()) == 8


def test_what_verifies_candidates_is_tvm_s_search(matmul, caplog) -> None:
    tuner = TaskScheduler([matmul], callbacks=[], cost_model=WorldModelCostModel(StandIn(), verify=True))
    searches = tuner._world_model_policies(options("log.json", 8), None, [None], None)
    assert searches == [None] and "verify=True" in caplog.text


def test_tvms_search_can_be_had(matmul) -> None:
    tuner = scheduler(matmul, search="tvm")
    made = tuner._make_policies(options("log.json", 8), None)
    assert [type(policy) for policy in made] == [auto_scheduler.SketchPolicy]
    with pytest.raises(ValueError, match="search='grid': it is 'steps' or 'tvm'"):
        scheduler(matmul, search="grid")


def test_a_gpus_tasks_are_searched_by_tvm(matmul) -> None:
    gpu = auto_scheduler.SearchTask(
        workload_key=matmul.workload_key, target="cuda", hardware_params=matmul.hardware_params
    )
    made = scheduler(gpu)._make_policies(options("log.json", 8), None)
    assert [type(policy) for policy in made] == [auto_scheduler.SketchPolicy]


def test_params_are_read_by_their_names() -> None:
    usual = auto_scheduler.SketchPolicy.DEFAULT_PARAMS
    assert search_policy.evolution_of(usual) == Evolution()
    given = {"evolutionary_search_population": 7, "evolutionary_search_mutation_prob": 0.5}
    assert search_policy.evolution_of(usual | given) == Evolution(population=7, mutated=0.5)


def test_params_of_the_space_hold_for_what_is_drawn_and_what_is_changed(matmul) -> None:
    given = {**FEW, "max_innermost_split_factor": 4, "disable_change_compute_location": 1}
    search = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, seed=1, params=given)
    found = [steps for _, steps in search.evolve()]
    assert len(found) > 256 and {innermost(steps) for steps in [*search._draw(64), *found]} == {1, 2, 4}


def test_the_first_run_of_a_script_has_no_log_yet(matmul, tmp_path) -> None:
    log = tmp_path / "log.json"
    tuner = scheduler(matmul, load_log_file=str(log))
    tuner.tune(options(log, 4, per_round=4), search_policy_params=dict(FEW))
    assert len(log.read_text().splitlines()) == 4
    assert isinstance(tuner.search_policies[0], SearchPolicy)


def test_where_nothing_runs_at_all_it_ends(matmul, tmp_path, monkeypatch) -> None:
    """TVM's goes on: there it is said what the last one failed of, and no hour is lost."""
    monkeypatch.setattr(failure_budget, "MAX_FAILED", 9)
    log = tmp_path / "log.json"
    with pytest.raises(
        failure_budget.TooManyFailed, match=r"(?s)all \d+ candidates failed.*no such compiler"
    ):
        scheduler(matmul).tune(options(log, 64, builder=broken_builder()), search_policy_params=dict(FEW))
    assert 9 < len(log.read_text().splitlines()) < 16


def test_a_task_of_which_nothing_runs_is_left_and_ends_no_other_s(matmul, monkeypatch, caplog) -> None:
    monkeypatch.setattr(failure_budget, "MAX_FAILED", 9)
    failed, ran = (measure.MeasureResult([1.0], number, "text", 1.0, 1.0) for number in (2, 0))
    failures = failure_budget.Failures()
    failures.add([ran])  # of another task
    failures.add([failed] * 30)
    search = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, failures=failures)
    search._measured = {bytes([k]): ([], float("nan")) for k in range(10)}
    assert search.continue_search_one_round(4, None) == ([], [])
    assert "is left: all 10 of its candidates failed" in caplog.text
    with pytest.raises(failure_budget.TooManyFailed, match=r"(?s)all 10 candidates failed.*text"):
        failure_budget.Failures().add([failed] * 10)
    failures.add([failed] * 9, known=True)
    failures.add([ran], known=True)
    failures.add([failed] * 9, known=True)
    with pytest.raises(
        failure_budget.TooManyFailed, match="last 10 candidates of tasks that ran before failed"
    ):
        failures.add([failed], known=True)  # the disk is full


def test_of_a_schedule_that_was_measured_twice_the_best_counts(matmul) -> None:
    split = ["SP", 2, 0, 64, [4], 1]
    measured = [([split, ["CR", 2]], 2.0), ([split], float("nan")), ([split], 1.0), ([split, ["CR", 2]], 3.0)]
    search = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, measured=measured)
    assert list(search._measured.values()) == [([split], 1.0)]


def test_one_program_is_measured_once(matmul) -> None:
    """Steps that differ in what changes nothing are one; so are places around loops of one iteration."""
    search = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, seed=3, params=FEW)
    chosen = search.choose(32)
    assert len({str(given.state) for _, _, given in chosen}) == len(chosen) == 32
    again = search.choose(32)
    assert not {str(given.state) for _, _, given in chosen} & {str(given.state) for _, _, given in again}
    assert all("CR" not in [step[0] for step in steps] for _, steps, _ in chosen)


def test_a_program_of_an_earlier_run_is_known_by_other_steps_too(matmul) -> None:
    first = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, seed=3, params=FEW)
    programs = {str(given.state): steps for _, steps, given in first.choose(32)}
    measured = [(steps, 1.0) for steps in programs.values()]
    search = SearchPolicy(
        matmul, WorldModelCostModel(StandIn()), None, None, seed=3, params=FEW, measured=measured
    )
    search._measured = {key + b"other": pair for key, pair in search._measured.items()}  # as twins' keys are
    search._earlier = list(search._measured)
    assert not {str(given.state) for _, _, given in search.choose(32)} & set(programs)


def test_a_space_that_is_used_up_is_no_reason_for_tvm_s_search(matmul, monkeypatch) -> None:
    search = SearchPolicy(matmul, WorldModelCostModel(StandIn()), None, None, seed=3, params=FEW)
    found = search.evolve()[:6]
    monkeypatch.setattr(search, "evolve", lambda: found)
    search._measured = {key: (steps, 1.0) for key, steps in found[:5]}
    monkeypatch.setattr(search, "_input", lambda steps: None)  # TVM refuses the one that is left
    assert search.choose(4) == []
    search._measured = {}
    with pytest.raises(WmschedError, match="TVM refuses the best 6 of 6"):
        search.choose(4)


def test_each_batch_is_told_before_the_next_is_built(matmul, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(search_policy, "usable_cores", lambda: 1)
    heard = Heard()
    tuner = scheduler(matmul)
    tuner.tune(options(tmp_path / "log.json", 6, heard=heard, per_round=6), search_policy_params=dict(FEW))
    assert [len(inputs) for _, inputs, _ in heard.batches] == [2, 2, 2]
    assert all(isinstance(one, measure.MeasureInput) for _, inputs, _ in heard.batches for one in inputs)


def with_a_liked_tile(matmul, monkeypatch, diversity: float):
    """A search whose model likes all of one tile best, and that tile."""
    model = WorldModelCostModel(StandIn(), diversity=diversity)
    search = SearchPolicy(matmul, model, None, None, seed=5, params=FEW)
    found = [(key, steps, tile[0]) for key, steps in search.evolve() if (tile := register_tile(steps))]
    liked, count = Counter(tile for _, _, tile in found).most_common(1)[0]
    assert count > 32
    found.sort(key=lambda one: one[2] != liked)
    monkeypatch.setattr(search, "evolve", lambda: [one[:2] for one in found])
    return search, liked


@pytest.mark.parametrize(("diversity", "most"), [(0.0, 16), (1.0, 4)])
def test_a_round_is_shared_among_register_tiles(matmul, monkeypatch, diversity, most) -> None:
    search, liked = with_a_liked_tile(matmul, monkeypatch, diversity)
    chosen = Counter(register_tile(steps)[0] for _, steps, _ in search.choose(16))
    assert chosen[liked] == most == max(chosen.values()) and chosen.total() == 16


@pytest.mark.parametrize(("seconds", "fewest", "most"), [(1.0, 5, 10), (3.0, 0, 0)])
def test_a_later_round_goes_by_how_fast_a_tile_was(matmul, monkeypatch, seconds, fewest, most) -> None:
    search, liked = with_a_liked_tile(matmul, monkeypatch, 1.0)
    for _, steps, _ in search.choose(16):
        search._take(steps, seconds if register_tile(steps)[0] == liked else 2.0)
    second = Counter(register_tile(steps)[0] for _, steps, _ in search.choose(16))
    assert fewest <= second[liked] <= most
    if seconds == 1.0:
        assert all(count <= 2 for tile, count in second.items() if tile != liked)
