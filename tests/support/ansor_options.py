"""Options of AutoScheduler's for small searches."""

from __future__ import annotations

from tvm import auto_scheduler

SMALL = {"evolutionary_search_population": 128, "sample_init_min_population": 30}


def options(log, trials: int, *, builder=None, callbacks=(), per_round: int = 64):
    return auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=per_round,
        builder=builder or auto_scheduler.LocalBuilder(timeout=30, n_parallel=1),
        runner=auto_scheduler.LocalRunner(timeout=30, number=1, repeat=1, min_repeat_ms=1),
        measure_callbacks=[auto_scheduler.RecordToFile(str(log)), *callbacks],
        verbose=0,
    )
