"""Programs timed as on a processor with more cores, and the search that the shipped bundle makes for one."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
import tvm
from tvm import auto_scheduler, te
from tvm.auto_scheduler.measure import MeasureInput

from benchmarks.tune.emulated import Emulator, emulated
from benchmarks.tune.measuring import search_task
from wmsched import zoo
from wmsched.ansor.compute_dag import hardware_tuple, workload_from_task
from wmsched.ansor.cost_model import ansor_ffi
from wmsched.ansor.runner import several_places
from wmsched.ansor.task_scheduler import WorldModelCostModel
from wmsched.ansor.workers import kept_workers
from wmsched.features.hardware import run_threads
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import FEATURE_NAMES, features


def rows_in_parallel(rows: int):
    """A schedule with `rows` parallel iterations."""
    a = te.placeholder((rows, 64), name="A")
    b = te.compute((rows, 64), lambda i, j: te.exp(a[i, j]), name="B")
    schedule = te.create_schedule(b.op)
    schedule[b].parallel(b.op.axis[0])
    return schedule, [a, b]


def test_the_first_threads_share_is_what_is_run(target, tmp_path) -> None:
    """Counted by what is written: a test that timed it failed on a machine that was busy besides."""
    schedule, arguments = rows_in_parallel(48)
    built = tvm.build(schedule, arguments, target=target)

    def written(function) -> list[bool]:
        """Whether each row of the result was."""
        unwritten = np.full((48, 64), np.nan, "float32")
        tensors = [tvm.nd.array(np.ones((48, 64), "float32")), tvm.nd.array(unwritten)]
        function(*tensors)
        rows = ~np.isnan(tensors[1].numpy())
        assert (rows.all(axis=1) == rows.any(axis=1)).all()
        return rows.all(axis=1).tolist()

    def shared(threads: int) -> list[bool]:
        folder = tmp_path / str(threads)
        folder.mkdir()
        return written(Emulator(threads, folder).load(built))

    assert shared(1) == [True] * 48
    assert shared(16) == [True] * 3 + [False] * 45
    assert shared(36) == [True] * 2 + [False] * 46  # 12 have two, the others one: the fullest's
    assert written(built) == [True] * 48  # the module itself stays as it was
    with pytest.raises(ValueError, match="at least 1"):
        Emulator(0, tmp_path)


def test_a_program_without_a_parallel_loop_is_timed_as_it_is(target, tmp_path) -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1, name="B")
    built = tvm.build(te.create_schedule(b.op), [a, b], target=target)
    tensors = [tvm.nd.array(np.ones(64, "float32")), tvm.nd.empty((64,), "float32")]
    Emulator(16, tmp_path).load(built)(*tensors)
    assert (tensors[1].numpy() == 2).all()


@pytest.mark.slow
def test_a_search_is_measured_so(matmul) -> None:
    """With as many cores as rows of tiles, whole records come of it, and the runner is put back."""
    from tvm.auto_scheduler import measure

    before = measure._timed_eval_func
    policy = auto_scheduler.SketchPolicy(matmul, auto_scheduler.RandomModel(), seed=1, verbose=0)
    measurer = measure.ProgramMeasurer(
        auto_scheduler.LocalBuilder(), auto_scheduler.LocalRunner(timeout=10), [], verbose=0
    )
    with kept_workers(), several_places(), emulated(16):
        _, results = policy.continue_search_one_round(4, measurer)
    assert [int(result.error_no) for result in results] == [0] * 4
    assert measure._timed_eval_func is before


@pytest.mark.parametrize(
    "name, cores",
    [
        pytest.param("resnet50/11", 64, marks=pytest.mark.slow),
        pytest.param("mobilenetv2/9", 64, marks=pytest.mark.slow),
        ("bert-base/1", 64),
    ],
)
def test_what_is_chosen_for_many_cores_keeps_them_busy(name: str, cores: int, target) -> None:
    """From the same candidates: half of random ones leave cores idle, none of the best few ours does."""
    (row,) = zoo.find(name)
    task = search_task(row, target, cores)
    assert hardware_tuple(task.hardware_params)[0] == cores
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), seed=1, verbose=0)
    states = list(policy.sample_initial_population())
    workload = workload_from_task(task)
    lines = [ansor_ffi.SerializeMeasureInput(MeasureInput(task, s)) for s in states]
    steps = [orjson.loads(str(line))[1][1] for line in lines]
    phi = features(steps, workload, threads=run_threads(workload))[0]
    times = 2.0 ** phi[:, FEATURE_NAMES.index(SLOWDOWN)]
    chosen = np.argsort(-WorldModelCostModel("x86-avx512").predict(task, states))[:8]
    assert np.mean(times) > 1.5 and np.median(times[chosen]) < 1.3
