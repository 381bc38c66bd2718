"""What a prediction costs in MetaSchedule's search: ours and the stock XGBModel that has learnt, in turn.

``pytest -m slow -s tests/meta/metaschedule/test_speed.py`` prints the figures. The stock model scores at
random until it has a hundred measurements, so a short search does not show what it costs: here it has learnt.
The candidates are random and new to ours at each turn; those of a search have more in common, which spares
it work.
"""

from __future__ import annotations

import time

import numpy as np
import programs as P
import pytest
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult

from benchmarks.tune.meta import workloads
from wmsched.metaschedule.cost_model import WorldModelCostModel

ROUNDS, POPULATION = 4, 600


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conv2d-relu", "conv2d-stride-relu", "softmax", "ffn"])
def test_ours_takes_less_of_a_processor_than_the_stock_model(kind) -> None:
    module = workloads.module(kind)
    context = P.context(module, P.CPU)
    found = P.sampled(P.context(module, P.CPU, population=POPULATION), POPULATION)
    each = len(found) // (ROUNDS + 1)
    assert each >= 40  # the search gives a schedule once
    parts = [found[k * each : (k + 1) * each] for k in range(ROUNDS + 1)]
    stock = ms.cost_model.XGBModel(num_warmup_samples=1)
    seconds = np.random.default_rng(0).uniform(1e-4, 1e-2, each)
    stock.update(context, parts[0], [RunnerResult([second], None) for second in seconds])
    ours = WorldModelCostModel("x86-meta")
    models = {"stock": stock, "ours": ours}
    wall: dict[str, list[float]] = {name: [] for name in models}
    cpu: dict[str, list[float]] = {name: [] for name in models}
    for turn, part in enumerate(parts):
        for name, model in models.items():
            clock, processor = time.perf_counter(), time.process_time()
            scores = model.predict(context, part)
            if turn:  # the first turn loads and compiles
                wall[name].append(time.perf_counter() - clock)
                cpu[name].append(time.process_time() - processor)
            assert len(set(np.asarray(scores).tolist())) > each // 4  # neither says the same of all
    assert not ours.problems
    cost = {name: (1e3 * min(wall[name]) / each, 1e3 * min(cpu[name]) / each) for name in models}
    ratios = [a / b for a, b in zip(cost["stock"], cost["ours"])]
    print(
        f"\n{kind}: ms a candidate, wall and CPU: stock {cost['stock'][0]:.2f}, {cost['stock'][1]:.2f};"
        f" ours {cost['ours'][0]:.2f}, {cost['ours'][1]:.2f}; ratios {ratios[0]:.1f}, {ratios[1]:.1f}"
    )
    assert ratios[1] > 6  # of processor time; 17 to 57 were seen
