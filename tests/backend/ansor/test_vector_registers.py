"""What the shipped bundle chooses for a processor fits the vector registers that it has."""

from __future__ import annotations

import numpy as np
import orjson
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput

from benchmarks.tune.measuring import search_task
from wmsched import zoo
from wmsched.ansor.compute_dag import workload_from_task
from wmsched.ansor.cost_model import ansor_ffi
from wmsched.ansor.task_scheduler import WorldModelCostModel
from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.features.vector_width import AVX2, AVX512

CPU = "llvm -keys=cpu -mtriple=x86_64-linux-gnu -mcpu={} -num-cores=2"


def of_ymm(phi: np.ndarray) -> np.ndarray:
    """How many registers of 8 numbers the accumulators take, of those that phi counts by 16."""
    column = dict(zip(FEATURE_NAMES, phi.T))
    lanes = np.fmax(np.round(np.exp2(column["main_vector"]) - 1), 1)
    halves = np.ceil(lanes / AVX2.lanes) / np.ceil(lanes / AVX512.lanes)
    return (np.exp2(column["accumulators"]) - 1) * halves


def test_tiles_fit_half_as_many_registers_of_half_the_width() -> None:
    """Of AVX-512's tiles a good part does not: without `vector_units` they were chosen for AVX2 too."""
    (row,) = zoo.find("resnet50/2")
    chosen = {}
    for cpu in ("alderlake", "sapphirerapids"):
        task = search_task(row, CPU.format(cpu), 2)
        policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), seed=1, verbose=0)
        states = list(policy.sample_initial_population())
        lines = [ansor_ffi.SerializeMeasureInput(MeasureInput(task, state)) for state in states]
        best = np.argsort(-WorldModelCostModel("x86-avx512").predict(task, states))[:16]
        steps = [orjson.loads(str(lines[place]))[1][1] for place in best]
        chosen[cpu] = of_ymm(features(steps, workload_from_task(task))[0])
    assert np.mean(chosen["alderlake"] <= AVX2.number) > 0.7, chosen
    assert np.mean(chosen["sapphirerapids"] > AVX2.number) > 0.4, chosen
