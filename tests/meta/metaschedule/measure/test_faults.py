"""A whole tuning run with TVM's own builder and runner, in which every kind of thing goes wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time

import faults
import numpy as np
import programs as P
import pytest
import tvm
from checkout import SUPPORT
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.measure.builder import build
from wmsched.metaschedule.measure.runner import checked

SIZE = 128


def limit() -> float:
    """Seconds that a build or a run may take: the start of a worker, which imports TVM, is in it."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "import tvm, tvm.s_tir.meta_schedule"], check=True)
    return 4 + 3 * (time.monotonic() - start)


@pytest.mark.slow
@pytest.mark.parametrize("online", [False, True])
def test_a_tenth_of_each_fails_hangs_or_is_nan(tmp_path, monkeypatch, bundle, online) -> None:
    """Builds that raise and hang, runs that raise, hang and return NaN, a tenth of the candidates each."""
    trials, seconds = 20, limit()
    monkeypatch.setenv(faults.FOLDER, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))  # the workers import `faults`
    P.fresh_loggers()
    model = WorldModelCostModel(bundle, online=online)
    module, target = P.module(P.matmul(SIZE)), Target({"kind": "llvm", "num-cores": 1})
    config = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0, enable_cpu_cache_flush=False)
    heard: list[str] = []

    @tvm.ir.utils.derived_object
    class Listen(ms.measure_callback.PyMeasureCallback):
        """Keeps the reasons of what failed."""

        def apply(self, scheduler, task, candidates, built, ran) -> None:
            heard.extend(str(each.error_msg) for each in ran if each.error_msg is not None)

    database = ms.tune_tir(
        module,
        target,
        str(tmp_path / "db"),
        trials,
        num_trials_per_iter=10,
        builder=ms.builder.LocalBuilder(max_workers=1, timeout_sec=seconds, f_build=faults.build),
        runner=checked(
            ms.runner.LocalRunner(timeout_sec=seconds, evaluator_config=config, f_run_evaluator=faults.run)
        ),
        cost_model=model,
        measure_callbacks=[Listen(), *ms.measure_callback.MeasureCallback.create("default")],
        strategy=ms.search_strategy.EvolutionarySearch(
            population_size=32, genetic_num_iters=1, init_min_unmeasured=10
        ),
        num_tuning_cores=1,
        seed=1,
    )
    assert model.problems == {}
    for reason in ("while it was built", "Builder: Timeout", "while it was run", "Runner: Timeout", "nan"):
        assert any(reason in text for text in heard), (reason, heard)
    lines = (tmp_path / "db" / "database_tuning_record.json").read_text().splitlines()
    times = [float(np.mean(json.loads(line)[1][1])) for line in lines]
    assert len(times) == trials and all(map(math.isfinite, times))
    good = [t for t in times if t < 1e9]
    assert trials * 0.4 <= len(good) == trials - len(heard)
    again = ms.database.JSONDatabase(work_dir=str(tmp_path / "db"))  # the files can be read again
    assert len(again) == trials
    for each in (database, again):
        record = each.query_tuning_record(module, target, "main")
        assert float(np.mean([float(t) for t in record.run_secs])) == pytest.approx(min(good))
    computes_the_product(again.query_schedule(module, target, "main").mod, target)


def computes_the_product(mod, target) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    out = tvm.runtime.empty((SIZE, SIZE), "float32")
    built = build(mod, target)
    built["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)
