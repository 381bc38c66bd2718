"""MetaSchedule's whole search on a made-up machine: CUDA without a GPU, and recorded times replayed."""

from __future__ import annotations

import json

import numpy as np
import programs as P
import pytest
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from benchmarks.tune.meta import simulated
from benchmarks.tune.meta.simulated_gpu import Refused, RooflineGpu
from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from wmsched.base.errors import UnknownName, WmschedError
from wmsched.features.hardware import gpu_columns, hardware_features
from wmsched.features.table import HARDWARE_NAMES
from wmsched.learn.data.dataset import Dataset
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import RowBuilder
from wmsched.model.world_model import WorldModel


def tune(folder, target, told, model, *, trials=16, seed=1):
    """A run of `trials` in rounds of eight; the database."""
    P.fresh_loggers()
    import_intrinsics(target)
    builder, runner = simulated.machine(told)
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=32, genetic_num_iters=2, init_min_unmeasured=16
    )
    return ms.tune_tir(
        P.module(P.matmul()),
        target,
        str(folder),
        trials,
        num_trials_per_iter=8,
        builder=builder,
        runner=runner,
        cost_model=model,
        strategy=strategy,
        num_tuning_cores=1,
        seed=seed,
    )


def records_of(folder):
    lines = (folder / "database_tuning_record.json").read_text().splitlines()
    return [(json.loads(line)[1][0], float(np.mean(json.loads(line)[1][1]))) for line in lines]


@pytest.fixture(scope="module")
def gpu():
    return Target(P.GPUS["RTX 4090"])


@pytest.fixture(scope="module")
def tuned(gpu, bundle, tmp_path_factory):
    """A whole run for an RTX 4090 with our model, online."""
    folder = tmp_path_factory.mktemp("rtx4090")
    model = WorldModelCostModel(bundle, online=True)
    return folder, tune(folder, gpu, RooflineGpu(gpu), model), model


def test_cudas_search_runs_to_its_end_without_a_gpu(tuned, gpu) -> None:
    folder, database, model = tuned
    assert model.problems == {}
    found = records_of(folder)
    assert len(found) == 16 and all(0 < seconds < 1 for _, seconds in found)
    assert len({seconds for _, seconds in found}) > 8  # the made-up GPU tells schedules apart
    best = database.query_tuning_record(P.module(P.matmul()), gpu, "main")
    assert float(best.run_secs[0]) == min(seconds for _, seconds in found)
    schedule = database.query_schedule(P.module(P.matmul()), gpu, "main")
    assert "threadIdx.x" in schedule.mod.script() and "blockIdx.x" in schedule.mod.script()
    again = ms.database.JSONDatabase(work_dir=str(folder))
    assert len(again) == 16
    assert len(next(iter(model._observed.items()))[1]) == 16


@pytest.mark.slow
def test_a_record_replayed_knows_what_was_measured_and_no_better(tuned, gpu, bundle, tmp_path) -> None:
    recorded, *_ = tuned
    told = simulated.Recorded(recorded, P.module(P.matmul()), gpu)
    best = min(seconds for _, seconds in records_of(recorded))
    assert len(told.known) == 16 and told.skipped == 0
    assert sorted(told.known.values()) == sorted(seconds for _, seconds in records_of(recorded))
    model = WorldModelCostModel(bundle)
    tune(tmp_path / "ours", gpu, told, model, seed=2)
    tune(tmp_path / "again", gpu, told, WorldModelCostModel(bundle), seed=2)
    found = records_of(tmp_path / "ours")
    assert found == records_of(tmp_path / "again")  # no noise
    assert len(found) == 16 and min(seconds for _, seconds in found) >= best
    assert {seconds for _, seconds in found} <= set(told.known.values())
    assert model.problems == {}


class Told:
    """Hears what a build says."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def problem(self, text) -> None:
        self.problems.append(text)

    def note(self, text) -> None: ...

    def start(self, what, total, done) -> None: ...

    def step(self, kind="ok") -> None: ...


def test_a_dataset_and_a_model_of_a_gpu_that_is_not_here(tuned, gpu, tmp_path) -> None:
    told = Told()
    options = BuildOptions(states_per_workload=2, jobs=1)
    manifest = build([str(tuned[0])], tmp_path / "ds", options, told)
    assert told.problems == [] and manifest["totals"]["records"] == 16
    dataset = Dataset(tmp_path / "ds")
    (workload,) = dataset.workloads()
    h = dict(zip(HARDWARE_NAMES, hardware_features(workload)))
    assert h["h.is_gpu"] == 1 and h["h.cores"] == 128 and h["h.warp_size"] == 32
    assert gpu_columns(workload.target)["gpu_capability"] == 8.9
    found = list(dataset.trajectories(workload.id))
    assert sum(bool(t.states) for t in found) == 2
    rows = RowBuilder(state="none").rows(
        workload, np.zeros(0, np.float32), hardware_features(workload), [t.steps for t in found]
    )
    seconds = np.array([t.measurement.seconds for t in found])
    ranker = Ranker.fit([RankGroup("mm", rows, seconds)], RankerConfig(rounds=30, threads=1))
    WorldModel(ranker, state="none").save_pretrained(tmp_path / "bundle")
    model = WorldModelCostModel(tmp_path / "bundle", diversity=0.0)
    candidates = P.sampled(P.context(P.matmul(), P.GPUS["RTX 4090"], "cuda"), 4)
    scores = model.predict(ms.TuneContext(P.module(P.matmul()), target=gpu), candidates)
    assert model.problems == {} and len(set(scores)) > 1
    assert np.corrcoef(np.log(seconds), ranker.margins(rows))[0, 1] < -0.5  # it has seen these


def test_stock_xgb_runs_on_the_same_machine(gpu, tmp_path) -> None:
    from tvm.s_tir.meta_schedule.cost_model import XGBModel

    tune(tmp_path, gpu, RooflineGpu(gpu), XGBModel(num_warmup_samples=4, num_tuning_cores=1))
    assert len(records_of(tmp_path)) == 16


def test_a_failed_record_fails_again(tuned, gpu, tmp_path) -> None:
    lines = (tuned[0] / "database_tuning_record.json").read_text().splitlines()
    bad = json.loads(lines[0])
    bad[1][1] = [1e10]
    folder = tmp_path / "deeper" / "inside"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("\n".join([json.dumps(bad), *lines[1:4], '{"cut']) + "\n")
    (folder / "run.workload.json").write_text((tuned[0] / "database_workload.json").read_text())
    told = simulated.Recorded(tmp_path, P.module(P.matmul()), gpu)
    assert len(told.known) == 4 and len(told.times) == 3
    failed = next(text for text, seconds in told.known.items() if not np.isfinite(seconds))
    told.known = {simulated._text(P.module(P.matmul())): told.known[failed]}
    with pytest.raises(Refused, match="recorded"):
        told.seconds(P.module(P.matmul()))
    with pytest.raises(WmschedError, match="no record"):
        simulated.Recorded(tmp_path, P.module(P.softmax()), gpu)


def test_the_made_up_gpu_prefers_what_a_gpu_does(gpu) -> None:
    def bound(threads, *, columns=True, n=1024):
        """A copy of [n, n] with so many threads, along the rows of memory or across them."""
        from tvm import te
        from tvm.s_tir import Schedule

        a = te.placeholder((n, n), name="A")
        b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
        schedule = Schedule(P.module(te.create_prim_func([a, b])))
        block = schedule.get_sblock("B")
        if not columns:
            schedule.reorder(*schedule.get_loops(block)[::-1])
        outer, inner = schedule.split(schedule.fuse(*schedule.get_loops(block)), [None, threads])
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")
        return schedule.mod

    told = RooflineGpu(gpu)
    assert told.seconds(bound(256)) == told.seconds(bound(256)) > 0
    assert told.seconds(bound(256)) < 0.7 * told.seconds(bound(256, columns=False))  # whole sectors are read
    assert told.seconds(bound(256)) < 0.5 * told.seconds(bound(2))  # whole warps
    assert told.seconds(bound(256, n=4096)) > 4 * told.seconds(bound(256))
    small = RooflineGpu(Target(P.GPUS["T4"]))
    assert small.seconds(bound(256, n=4096)) > 2 * told.seconds(bound(256, n=4096))  # less bandwidth
    for bad in (bound(2048), P.module(P.matmul())):
        with pytest.raises(Refused):
            told.seconds(bad)
    with pytest.raises(UnknownName, match="arch"):
        RooflineGpu(Target(P.CPU))
