"""The shipped bundle on a processor with more cores than any whose records it has learnt from."""

from __future__ import annotations

import numpy as np
import programs as P
import pytest
from tvm.target import Target

from wmsched.base.cores import usable_cores
from wmsched.features.hardware import run_threads
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import FEATURE_NAMES
from wmsched.features.trace_features import trace_features
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.trace_reader import steps_of_schedule
from wmsched.metaschedule.workload import workload_of
from wmsched.toolchain.targets import target_text

MANY = {"kind": "llvm", "mcpu": "znver4", "num-cores": 128}


@pytest.mark.parametrize("func", [P.matmul, pytest.param(P.conv, marks=pytest.mark.slow)])
def test_what_is_chosen_for_many_cores_keeps_them_busy(func) -> None:
    """Of 64 threads the best few that it would measure lose next to nothing; random ones lose much."""
    with Target(MANY):
        context = P.context(func(), MANY, population=96)
        candidates = P.sampled(context, 96)
    workload = workload_of(context.mod, target_text(context.target))
    steps = [steps_of_schedule(candidate.sch) for candidate in candidates]
    phi, _, _ = trace_features(steps, workload, worded=False, threads=run_threads(workload))
    times = 2.0 ** phi[:, FEATURE_NAMES.index(SLOWDOWN)]
    scores = np.array(WorldModelCostModel("x86-meta").predict(context, candidates))
    assert np.median(times[np.argsort(-scores)[:8]]) <= np.quantile(times, 0.2) + 0.3 < np.mean(times)


def test_threads_that_the_environment_names(monkeypatch) -> None:
    here = target_text(Target({"kind": "llvm", "num-cores": usable_cores()}))
    elsewhere = target_text(Target(MANY))
    mod = P.module(P.matmul())
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert run_threads(workload_of(mod, here)) == max(1, usable_cores() // 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert run_threads(workload_of(mod, here)) == 5
    monkeypatch.setenv("TVM_NUM_THREADS", "6")
    assert run_threads(workload_of(mod, here)) == 6
    assert run_threads(workload_of(mod, elsewhere)) == 64
