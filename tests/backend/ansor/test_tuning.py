"""Real tuning runs through `TaskScheduler`: built and measured here, logged, resumed, read back by TVM."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from ansor_options import SMALL, options
from stand_in import StandIn
from tvm import auto_scheduler
from tvm.auto_scheduler.cost_model.cost_model import CostModel
from tvm.contrib import tar

from wmsched.ansor import callbacks
from wmsched.ansor.callbacks import MeasureProgress
from wmsched.ansor.task_scheduler import TaskScheduler, WorldModelCostModel
from wmsched.base.cores import requested_threads
from wmsched.features.hardware import run_threads
from wmsched.measure.corrections import Corrections
from wmsched.measure.malloc_env import MALLOC_ENVIRONMENT
from wmsched.schedules.log_file import tally
from wmsched.schedules.steps import parse_record
from wmsched.toolchain import host_cpu

pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture(scope="module")
def tuned(matmul, tmp_path_factory):
    """Sixteen trials: the log, the scheduler, and what the progress callback told."""
    log = tmp_path_factory.mktemp("tuned") / "log.json"
    told: list[tuple[str, list[float]]] = []
    params = dict(SMALL)
    scheduler = TaskScheduler([matmul], [2.0], callbacks=[], cost_model=StandIn(), seed=3)
    progress = MeasureProgress(lambda key, seconds: told.append((key, seconds)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Corrections, "due", lambda self: {})  # the log would have other times than were told
        scheduler.tune(options(log, 16, callbacks=[progress]), search_policy_params=params)
    assert (
        params == SMALL
    )  # SketchPolicy fills its defaults into the dict that it is given: not into the caller's
    return log, scheduler, told


def test_sixteen_trials_are_measured_and_logged(tuned, matmul) -> None:
    log, scheduler, told = tuned
    counted = tally(log)
    (key,) = counted.trials
    assert key == (matmul.workload_key, str(matmul.target))
    assert counted.trials[key] == 16 and counted.bad == []
    assert scheduler.best_costs[0] == pytest.approx(counted.best[key].measurement.seconds, rel=1e-4)
    assert scheduler.cost_model.problems == {}
    assert scheduler.cost_model.round_size == 16
    seconds = [value for _, batch in told for value in batch]
    assert {key for key, _ in told} == {matmul.workload_key} and len(seconds) == 16
    assert np.nanmin(seconds) == pytest.approx(scheduler.best_costs[0])


def test_processes_that_time_have_steady_buffers_and_ours_keeps_its_environment(matmul, tmp_path) -> None:
    seen: list[str | None] = []
    (name, value), *_ = MALLOC_ENVIRONMENT.items()
    progress = MeasureProgress(lambda key, seconds: seen.append(os.environ.get(name)))
    before = os.environ.get(name)
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=StandIn(), seed=3)
    scheduler.tune(options(tmp_path / "log.json", 2, callbacks=[progress]), search_policy_params=dict(SMALL))
    assert seen and set(seen) == {before or value} and os.environ.get(name) == before


def test_what_was_measured_is_what_the_model_liked(tuned) -> None:
    log, scheduler, _ = tuned
    scorer = scheduler.cost_model.world_model.scorer
    lines = log.read_text().splitlines()
    assert sum('"CHW"' in line or '"SP"' in line for line in lines) == 16
    assert sum(scorer.batches) > 100  # the search asked about many more than it measured


def test_tvm_builds_from_the_log(tuned, matmul) -> None:
    import tvm

    log = tuned[0]

    with auto_scheduler.ApplyHistoryBest(str(log)) as best:
        state = best.query(matmul.target, matmul.workload_key, True, matmul.compute_dag, "matmul")
        assert state is not None
    schedule, args = matmul.apply_best(str(log))
    module = tvm.build(schedule, args, target=matmul.target)
    a, b = (np.random.default_rng(0).random((64, 64), dtype="float32") for _ in range(2))
    device, out = tvm.cpu(), np.zeros((64, 64), dtype="float32")
    arrays = [tvm.nd.array(value, device) for value in (a, b, out)]
    module(*arrays)
    np.testing.assert_allclose(arrays[2].numpy(), a @ b, rtol=1e-4)


def test_a_run_goes_on_from_its_log(tuned, matmul, tmp_path) -> None:
    log = tmp_path / "log.json"
    shutil.copy(tuned[0], log)
    best_before = tuned[1].best_costs[0]
    world = StandIn()
    scheduler = TaskScheduler(
        [matmul], load_log_file=str(log), callbacks=[], cost_model=world, online=True, seed=4
    )
    scheduler.tune(options(log, 4), search_policy_params=dict(SMALL))
    lines = log.read_text().splitlines()
    assert len(lines) == 20
    programs = [line[: line.index('"r":')] for line in lines]
    assert len(set(programs)) == 20  # nothing measured before is measured again
    assert scheduler.best_costs[0] <= best_before * 1.0001  # a log keeps six digits
    assert len(world.scorer.observed) == 20  # sixteen from the log, and this run's four


def test_a_builder_that_fails_on_a_share_of_the_candidates(matmul, tmp_path, states) -> None:
    def flaky(output, files, **kwargs):
        if sum(Path(files[0]).read_bytes()) % 2:
            raise RuntimeError("the compiler fell over")
        tar.tar(output, files)

    flaky.output_format = "tar"
    log, world = tmp_path / "log.json", StandIn()
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=world, online=True, seed=5)
    builder = auto_scheduler.LocalBuilder(timeout=30, n_parallel=1, build_func=flaky)
    scheduler.tune(options(log, 12, builder=builder, per_round=6), search_policy_params=dict(SMALL))
    seconds = np.array([value for _, value in world.scorer.observed])
    assert len(seconds) == 12
    assert 0 < np.isnan(seconds).sum() < 12
    assert scheduler.best_costs[0] < 1
    assert scheduler.cost_model.problems == {}


def test_a_model_that_raises_does_not_end_a_tuning_run(matmul, tmp_path) -> None:
    log = tmp_path / "log.json"
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=StandIn(fails="no such operator"), seed=6)
    scheduler.tune(options(log, 2), search_policy_params=dict(SMALL))
    assert tally(log).total == 2 and scheduler.best_costs[0] < 1


def test_without_a_cost_model_it_is_the_upstream_scheduler(matmul, tmp_path, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(auto_scheduler.TaskScheduler, "tune", lambda self, *args: asked.append(args))
    option = options(tmp_path / "log.json", 2)
    scheduler = TaskScheduler([matmul], callbacks=[])
    scheduler.tune(option, "sketch.random", {"eps_greedy": 0.1}, True, 3)
    assert asked == [(option, "sketch.random", {"eps_greedy": 0.1}, True, 3)]


def test_another_cost_model_of_tvms_can_be_given_too(matmul) -> None:
    model = auto_scheduler.XGBModel(verbose_eval=0)
    assert TaskScheduler([matmul], callbacks=[], cost_model=model).cost_model is model
    ours = WorldModelCostModel(StandIn())
    assert TaskScheduler([matmul], callbacks=[], cost_model=ours).cost_model is ours
    assert isinstance(ours, CostModel)


def test_two_cost_models_at_once_are_refused(matmul, tmp_path) -> None:
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=StandIn())
    with pytest.raises(ValueError, match=r"sketch\.xgb.*cost_model"):
        scheduler.tune(options(tmp_path / "log.json", 2), "sketch.xgb")


def test_fewer_trials_than_tasks_are_refused_as_upstream(matmul, tmp_path) -> None:
    scheduler = TaskScheduler([matmul, matmul], callbacks=[], cost_model=StandIn())
    with pytest.raises(ValueError, match="too small"):
        scheduler.tune(options(tmp_path / "log.json", 1))


def test_a_seed_that_tvm_takes_for_none_is_refused(matmul) -> None:
    with pytest.raises(ValueError, match="seed=0: a seed is 1 or more"):
        TaskScheduler([matmul], cost_model=StandIn(), seed=0)


def test_a_log_that_is_not_there_yet_teaches_nothing(matmul, tmp_path, caplog) -> None:
    model = WorldModelCostModel(StandIn(), online=True)
    model.update_from_file(tmp_path / "none.json")
    assert "there is no log" in caplog.text and model.problems == {}


@pytest.mark.parametrize(
    ("trials", "given", "rounds", "size"),
    [
        (64, 64, None, 16),
        (256, 64, None, 64),
        (64, 8, None, 8),
        (64, 64, 1, 64),
        (64, 64, 2, 32),
        (1, 64, None, 1),
    ],
)
def test_a_world_model_searches_in_several_rounds(matmul, tmp_path, trials, given, rounds, size) -> None:
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=StandIn(), rounds=rounds)
    asked = options(tmp_path / "log.json", trials, per_round=given)
    used = scheduler._in_rounds(asked)
    assert int(used.num_measures_per_round) == size
    for name in ("num_measure_trials", "early_stopping", "verbose"):
        assert int(getattr(used, name)) == int(getattr(asked, name))
    assert used.builder.same_as(asked.builder) and used.runner.same_as(asked.runner)
    assert len(used.measure_callbacks) == 1


def test_tvms_own_models_keep_upstreams_rounds_and_buffers(matmul, tmp_path) -> None:
    asked = options(tmp_path / "log.json", 64)
    model = auto_scheduler.RandomModel()
    stock = TaskScheduler([matmul], callbacks=[], cost_model=model)
    assert stock._in_rounds(asked) is asked and stock.places == 1
    assert (
        int(
            TaskScheduler([matmul], callbacks=[], cost_model=model, rounds=2)
            ._in_rounds(asked)
            .num_measures_per_round
        )
        == 32
    )
    assert TaskScheduler([matmul], callbacks=[]).places == 1
    assert TaskScheduler([matmul], callbacks=[], cost_model=StandIn()).places == 3
    assert TaskScheduler([matmul], callbacks=[], cost_model=StandIn(), places=1).places == 1


def test_a_target_whose_programs_would_crash_here_is_told(matmul, tmp_path, caplog, monkeypatch) -> None:
    asked = options(tmp_path / "log.json", 4)
    scheduler = TaskScheduler([matmul, matmul], callbacks=[], cost_model=StandIn())
    scheduler._warn_of_targets(asked.runner)
    assert not caplog.records
    monkeypatch.setattr(host_cpu, "read_cpuinfo", lambda path: ("", frozenset({"sse2"})))
    scheduler._warn_of_targets(auto_scheduler.RPCRunner.__new__(auto_scheduler.RPCRunner))
    assert not caplog.records
    scheduler._warn_of_targets(asked.runner)
    (told,) = caplog.messages
    assert "use avx, avx2, fma" in told and "which this machine's processor has not" in told


@pytest.mark.parametrize("wrong", [{"places": 0}, {"rounds": -1}])
def test_places_and_rounds_below_one_are_refused(matmul, wrong) -> None:
    (name, value), *_ = wrong.items()
    with pytest.raises(ValueError, match=f"{name}={value}: at least 1"):
        TaskScheduler([matmul], cost_model=StandIn(), **wrong)


def test_each_round_is_searched_and_its_candidates_timed_on_several_sets_of_buffers(matmul, tmp_path) -> None:
    log = tmp_path / "log.json"
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=StandIn(), seed=8, places=2, rounds=2)
    scheduler.tune(options(log, 8), search_policy_params=dict(SMALL))
    assert int(scheduler.num_measures_per_round) == 4 and scheduler.task_cts == [2]
    lines = log.read_text().splitlines()
    assert [len(json.loads(line)["r"][0]) for line in lines] == [2] * 8


def test_what_a_full_disk_left_of_a_line_does_not_stop_the_next_run(tuned, matmul, tmp_path, caplog) -> None:
    """TVM's reader raises there, and appends to it."""
    log = tmp_path / "log.json"
    shutil.copy(tuned[0], log)
    with log.open("a") as file:
        file.write('{"i": [["[')
    scheduler = TaskScheduler([matmul], callbacks=[], cost_model=StandIn(), seed=3, load_log_file=str(log))
    with caplog.at_level(logging.WARNING, "wmsched"):
        scheduler.tune(options(log, 4, per_round=4), search_policy_params=dict(SMALL))
    assert "1 lines of" in caplog.text and (tmp_path / "log.json.bad").exists()
    assert tally(log).total == 20 and tally(log).bad == []


def test_a_log_that_cannot_be_written_is_told_once(matmul, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(auto_scheduler, "save_records", lambda *_: None)  # as on a full disk
    record = callbacks._Record(str(tmp_path / "log.json"))
    (tmp_path / "log.json").touch()
    with caplog.at_level(logging.WARNING, "wmsched"):
        for _ in range(2):
            record(None, [1, 2], [1, 2])
    (told,) = [one.getMessage() for one in caplog.records if one.name == "wmsched"]
    assert "the last 2 records could not be written: make room on the disk" in told


def test_a_target_that_says_no_machine_is_told_where_tvm_builds_for_another(matmul, caplog) -> None:
    """The LLVM of the wheel makes programs for RISC-V then."""
    from wmsched.toolchain import targets

    plain = tvm.target.Target("llvm -mcpu=core-avx2")
    other = targets.foreign_triple(plain)
    assert other == "" or other.partition("-")[0] != platform.machine()
    assert targets.foreign_triple(matmul.target) == targets.foreign_triple(tvm.target.Target("cuda")) == ""
    whole = targets.measurable_target("llvm -mcpu=core-avx2")
    assert targets.foreign_triple(whole) == "" and "core-avx2" in str(whole)
    if other:
        assert f"-mtriple={platform.machine()}" in str(whole)
        task = auto_scheduler.SearchTask(workload_key=matmul.workload_key, target=plain)
        scheduler = TaskScheduler([task], callbacks=[], cost_model=StandIn(), seed=3)
        scheduler._warn_of_targets(auto_scheduler.LocalRunner())
        assert f"add -mtriple={platform.machine()}" in caplog.text


def test_a_model_of_processors_says_so_of_a_gpu_once(matmul, caplog) -> None:
    world = StandIn()
    world.about = {"targets": ["llvm -mcpu=znver4"]}
    model = WorldModelCostModel(world)
    gpu = auto_scheduler.SearchTask(
        workload_key=matmul.workload_key, target="cuda", hardware_params=matmul.hardware_params
    )
    for task in (matmul, gpu, gpu):
        model._task(task)
    assert caplog.text.count("has learnt from processors alone (llvm -mcpu=znver4, ...)") == 1


@pytest.mark.parametrize(("known", "times"), [("llvm -mcpu=znver4", 1), ("llvm -mcpu=znver3", 0)])
def test_a_model_of_avx512_says_so_of_avx2_once(known, times, matmul, caplog) -> None:
    world = StandIn()
    world.about = {"targets": [known]}
    model = WorldModelCostModel(world)
    for mcpu in ("sapphirerapids", "haswell", "znver2"):
        model._task(auto_scheduler.SearchTask(workload_key=matmul.workload_key, target=f"llvm -mcpu={mcpu}"))
    assert caplog.text.count('the target is llvm -keys=cpu -mcpu=haswell: cost_model="x86-avx2"') == times
    assert caplog.text.count("has learnt from AVX-512 alone") == times


def test_candidates_are_ranked_for_the_threads_that_they_run_on(matmul, monkeypatch) -> None:
    """Within a mask TVM's tasks say half of the machine's processors, and programs run on fewer threads."""
    heard = []
    world = StandIn()
    monkeypatch.setattr(world, "task", lambda workload, text: heard.append(run_threads(workload)))
    gpu = auto_scheduler.SearchTask(
        workload_key=matmul.workload_key, target="cuda", hardware_params=matmul.hardware_params
    )
    for threads in (0, 3):
        model = WorldModelCostModel(world)
        model.threads = threads
        model._task(matmul)
    model._task(gpu)
    assert heard == [int(matmul.hardware_params.num_cores), 3, 1]


def test_a_scheduler_knows_how_many_threads_run_here(tuned) -> None:
    _, scheduler, _ = tuned
    assert scheduler.cost_model.threads == requested_threads(os.environ) > 0


class Told:
    """A callback of the scheduler that keeps what was corrected."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float]] = []

    def pre_tune(self, scheduler, task_id) -> None:
        pass

    def post_tune(self, scheduler, task_id) -> None:
        pass

    def corrected(self, scheduler, task_id) -> None:
        self.found.append((task_id, float(scheduler.best_costs[task_id])))


def test_a_run_s_log_and_latencies_are_corrected(matmul, tmp_path, monkeypatch) -> None:
    """The second round shows that the first one's reference was timed a thousand times too high."""
    log, told, calls, before = tmp_path / "log.json", Told(), [], {}

    def due(self) -> dict[str, float]:
        calls.append(len(scheduler.ledger._programs))
        if len(calls) != 2:
            return {}
        before.update({number: costs(line) for number, line in enumerate(log.read_text().splitlines())})
        return dict.fromkeys(list(scheduler.ledger._programs)[: calls[0]], 1e-3)

    monkeypatch.setattr(Corrections, "due", due)
    scheduler = TaskScheduler([matmul], callbacks=[told], cost_model=StandIn(), seed=3, rounds=3, places=2)
    small = {"evolutionary_search_population": 64, "sample_init_min_population": 20}
    scheduler.tune(options(log, 6, per_round=2), search_policy_params=small)
    after = {number: costs(line) for number, line in enumerate(log.read_text().splitlines())}
    corrected = [k for k in before if after[k] != before[k]]
    assert len(after) == 6 and len(corrected) == calls[0] > 0
    for k in corrected:
        assert after[k] == pytest.approx([1e-3 * cost for cost in before[k]])
    (best,) = tally(log).best.values()
    assert scheduler.best_costs[0] == pytest.approx(best.measurement.seconds, rel=1e-4)
    history = scheduler.task_costs_history[0]
    assert len(history) == 3 and history == sorted(history, reverse=True)
    assert history[0] == pytest.approx(scheduler.best_costs[0], rel=1e-4)
    assert told.found == [(0, pytest.approx(float(scheduler.best_costs[0]), rel=1e-4))]


def costs(line: str) -> list[float]:
    return list(parse_record(line.encode(), place="log").measurement.costs)


def test_a_task_with_its_share_of_the_trials_waits_for_the_others() -> None:
    scheduler = object.__new__(TaskScheduler)
    scheduler.tasks, scheduler.dead_tasks, scheduler.num_measures_per_round = [None] * 4, set(), 4
    scheduler.objective_func, scheduler.task_cts = sum, [3, 1, 1, 1]
    scheduler.tune_option = type("Options", (), {"num_measure_trials": 36})
    scheduler.best_costs = np.array([1.0, 1.0, 1.5, 1.0])
    assert scheduler._within_share(1) == 1
    assert scheduler._within_share(0) == 2  # 12 of 36 trials, and less than a third of the time
    scheduler.best_costs[0] = 9.0
    assert scheduler._within_share(0) == 0
    scheduler.best_costs[0], scheduler.dead_tasks = 1.0, {1, 2, 3}
    assert scheduler._within_share(0) == 0
