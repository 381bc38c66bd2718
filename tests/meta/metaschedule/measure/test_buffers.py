"""MetaSchedule's programs timed on several sets of buffers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm
from checkout import SUPPORT
from programs import CPU, NoBuilder, NoRunner
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from wmsched.base.cores import THREADS
from wmsched.measure.buffer_offsets import PLACES
from wmsched.measure.cache_flush import TVM_FLUSH
from wmsched.metaschedule.measure import buffers
from wmsched.metaschedule.measure import measurer as meta_measure
from wmsched.metaschedule.measure.buffers import _argument_buffers, arguments, local_runner
from wmsched.metaschedule.measure.measurer import Believed, Measurer
from wmsched.toolchain.no_torch import no_torch
from wmsched.toolchain.targets import meta_host_target

MIB = 1 << 20
SHAPES = [["TENSOR", "float32", [4, 4]], ["TENSOR", "int32", [2]]]


@pytest.fixture(autouse=True)
def quick_starts():
    """Runners that are made here start their processes as those of `steady_runner` do."""
    with no_torch():
        yield


def candidate(*shape: int) -> ms.MeasureCandidate:
    a = te.placeholder(shape, name="a")
    function = te.create_prim_func([a, te.compute(shape, lambda *at: a(*at) + 1.0, name="b")])
    module = tvm.IRModule({"main": function})
    return ms.MeasureCandidate(Schedule(module), ms.arg_info.ArgInfo.from_prim_func(function))


@pytest.mark.parametrize("places", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_candidate_has_the_times_of_all_places(places: int) -> None:
    measurer = Measurer(Target(meta_host_target()), places=places, repeat=2, min_repeat_ms=3, builders=1)
    results = [result for _, result in measurer.measure([candidate(64), candidate(128)])]
    assert measurer.problems == {}
    for result in results:
        assert len(result.run_secs) == 2 * places
        assert all(0 < float(time) < 0.1 for time in result.run_secs)


@pytest.mark.slow
def test_programs_of_the_same_sizes_are_timed_beside_one_reference() -> None:
    """The candidates of a task lay their weights out as they want; each time is of use beside the others."""
    runner = local_runner(places=2, min_repeat_ms=4)
    measurer = Measurer(Target(meta_host_target()), builders=1, runner=runner)
    batch = [candidate(64), candidate(128), candidate(64), candidate(4, 16), candidate(16, 8)]
    assert all(len(result.run_secs) == 2 for _, result in measurer.measure(batch))
    shelf = Path(runner._inst.references.folder)
    assert len([path for path in shelf.iterdir() if (path / "reference.json").exists()]) == 2
    assert type(local_runner(places=2, paired=False)._inst) is ms.runner.LocalRunner._cls
    assert type(local_runner(places=1)._inst) is ms.runner.LocalRunner._cls


def summed(times: int, *shape: int) -> ms.MeasureCandidate:
    """A tensor of such a shape to which its sines are added so many times."""

    def value(*at):
        found = a(*at)
        for _ in range(times):
            found = te.sin(found + 1.0)
        return found

    a = te.placeholder(shape, name="a")
    function = te.create_prim_func([a, te.compute(shape, value, name="b")])
    return ms.MeasureCandidate(
        Schedule(tvm.IRModule({"main": function})), ms.arg_info.ArgInfo.from_prim_func(function)
    )


def test_what_is_much_faster_with_its_weight_laid_out_otherwise_is_timed() -> None:
    """It takes the reference's place; all libraries have one name, and are loaded in one process."""
    measurer = Measurer(Target(meta_host_target()), places=2, min_repeat_ms=4, builders=1)
    batch = [summed(60, 4096), summed(12, 64, 64), summed(2, 8, 8, 64), summed(1, 4096)]
    times = [[float(t) for t in result.run_secs or ()] for _, result in measurer.measure(batch)]
    assert measurer.problems == {} and all(len(each) == 2 for each in times)
    assert times[0][0] > 2 * times[1][0] > 4 * times[2][0]


NAMED = f"""
import os
from programs import CPU, NoBuilder, NoRunner
from tvm.target import Target
from wmsched.metaschedule.measure.measurer import Measurer

for target in ({{"kind": "cuda", "arch": "sm_80"}}, CPU):
    Measurer(Target(target), builder=NoBuilder(), runner=NoRunner())
    print(os.environ["{THREADS}"] or "none")
"""


@pytest.mark.parametrize("told", ["", "3"])
def test_programs_are_timed_with_their_number_of_threads_named(told: str) -> None:
    """Where it is not, TVM counts processors before each parallel loop: 5 microseconds on a Zen 5.

    In a process of its own: threads that have run here are as many as they were then.
    """
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, THREADS: told, "OMP_NUM_THREADS": ""}
    done = subprocess.run(
        [sys.executable, "-c", NAMED], env=environment, capture_output=True, text=True, check=True
    )
    half = max(1, min((os.cpu_count() or 1) // 2, len(os.sched_getaffinity(0))))
    assert done.stdout.split() == [told or "none", told or str(half)]


@pytest.mark.parametrize("least_ms", [0, 5])
def test_cold_calls_are_single_ones_whose_median_counts(least_ms: int, tmp_path, monkeypatch) -> None:
    made = []

    def evaluator(module, device, flush, number, each_ms, tensors):
        def evaluate(repeat):
            made.append((flush, number, each_ms, repeat))
            return tuple(1e-3 * (1 + k % 3) for k in range(repeat))

        return evaluate

    monkeypatch.setattr(buffers, "evaluator", evaluator)
    monkeypatch.setattr(tvm.runtime, "load_module", lambda path: None)
    found = buffers.timed("", (1, 1, least_ms, ""), 2, 10.0, "program", SHAPES)
    cold = [(TVM_FLUSH, 1, 0, 1), (TVM_FLUSH, 1, 0, 29)] * 2
    assert made == (cold if least_ms == 0 else [(TVM_FLUSH, 1, 5, 1)] * 2)
    assert found == [2e-3 if least_ms == 0 else 1e-3] * 2


@pytest.mark.slow
def test_a_cold_candidate_is_timed_also_by_itself() -> None:
    measurer = Measurer(
        Target(meta_host_target()), builders=1, runner=local_runner(places=1, min_repeat_ms=0)
    )
    ((_, result),) = measurer.measure([candidate(64)])
    assert len(result.run_secs) == 1 and 0 < float(result.run_secs[0]) < 0.1
    runner = local_runner(places=1, min_repeat_ms=0)._inst
    assert type(runner) is buffers.PairedRunner._cls and not runner.paired


def test_a_user_who_wants_to_leave_is_asked_after_each(monkeypatch) -> None:
    """TVM makes another error of Ctrl-C, and of it a failure of the candidate or of the builder."""
    batch = [candidate(64), candidate(128)]
    measurer = Measurer(Target(meta_host_target()), builder=NoBuilder(), runner=NoRunner())
    measurer.interrupted = lambda: True
    with pytest.raises(KeyboardInterrupt):
        list(measurer.measure(batch))
    calls = []

    class Broken:
        def build(self, inputs):
            calls.append(len(inputs))
            raise RuntimeError

    measurer._builder = Broken()
    with pytest.raises(KeyboardInterrupt):
        list(measurer.measure(batch))
    assert calls == [2]  # and not once more


def test_a_batch_of_failures_ends_when_the_time_is_up() -> None:
    measurer = Measurer(Target(meta_host_target()), builder=NoBuilder(every=1), runner=NoRunner())
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 2

    assert list(Believed(measurer, stop).measure([candidate(64 * n) for n in range(1, 9)])) == []
    assert len(asked) == 2


def test_a_candidate_shares_its_time_out() -> None:
    assert int(local_runner(places=3, min_repeat_ms=60).evaluator_config.min_repeat_ms) == 20
    assert int(local_runner(places=1, min_repeat_ms=60).evaluator_config.min_repeat_ms) == 60


def test_a_slow_program_has_one_place() -> None:
    assert len(list(arguments(0.0, tvm.cpu(), SHAPES, 3))) == 1
    assert len(list(arguments(10.0, tvm.cpu(), SHAPES, 3))) == 3


def test_the_gaps_of_a_place_are_the_same_each_time_and_others_elsewhere() -> None:
    def gaps(place: int) -> list[int]:
        return [
            0 if gap is None else int(gap.shape[0])
            for gap in _argument_buffers(place, tvm.cpu(), SHAPES)[::2]
        ]

    assert gaps(0) == [0, 0]
    assert gaps(1) == gaps(1) != gaps(2)
    assert all(MIB / 16 <= gap <= 4 * MIB for gap in gaps(1) + gaps(2))
    first, second = next(arguments(1.0, tvm.cpu(), SHAPES, 1))
    assert (tuple(first.shape), first.dtype) == ((4, 4), "float32")
    assert (tuple(second.shape), second.dtype) == ((2,), "int32")


def test_the_tensors_of_a_place_are_freed_though_tvm_holds_their_list() -> None:
    places = arguments(10.0, tvm.cpu(), SHAPES, 2)
    held = next(places)
    assert len(held) == 2
    assert len(next(places)) == 2 and held == []


def test_whole_numbers_are_good_indices() -> None:
    for dtype in ("int32", "int64", "uint8"):
        (found,) = next(arguments(1.0, tvm.cpu(), [["TENSOR", dtype, [5]]], 1))
        assert found.numpy().tolist() == [0] * 5


def test_a_gpu_s_runner_is_new_after_a_failure(monkeypatch) -> None:
    made = []

    def runner(**how):
        made.append(how)
        return NoRunner(faulty=True)  # its seventh fails

    monkeypatch.setattr(meta_measure, "local_runner", runner)
    for target, count in ((Target({"kind": "cuda", "arch": "sm_89"}), 2), (Target(CPU), 1)):
        made.clear()
        measurer = Measurer(target, builder=NoBuilder())
        failed = [not result.run_secs for _, result in measurer.measure([candidate(64)] * 9)]
        assert failed.index(True) == 6 and sum(failed) == 1
        assert len(made) == count
    assert made[0]["places"] == PLACES and made[0]["cache_flush"]


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(NotImplementedError, match="'SCALAR'"):
        next(arguments(1.0, tvm.cpu(), [["SCALAR", "int32", []]], 2))
