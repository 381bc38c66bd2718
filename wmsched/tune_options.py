"""What ``wmsched tune`` is asked for, of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wmsched.measure.buffer_offsets import PLACES

DIVERSITY = 1.0
STOCK = ("ansor", "xgb", "random")  # AutoScheduler's own: one by two names, the benchmark's and TVM's


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """One tuning run.

    Parameters
    ----------
    name : str
        A task, type or model of `wmsched.zoo`; with `workloads`, an id, description or network of that file.
    trials : int, optional
        Measurements in all, those of an earlier run that is resumed included. Without it and without
        `minutes` sixteen for each task, 64 at least.
    minutes : float, optional
        Of this run's search; it ends after the round in which they are over.
    log : Path
        Where records are appended, in AutoScheduler's own format.
    cost_model : str, optional
        A bundle's name or folder, or "ansor" (also "xgb") or "random" for AutoScheduler's own; by default
        what `wmsched.model.bundles` says of the target.
    resume : bool
        Go on with the records already in `log`.
    online : bool
        Let the world model learn from this run's measurements.
    rounds : int, optional
        Spread each task's share over this many rounds of search; by default as `wmsched.search.budget` says.
    diversity : float
        See `WorldModelCostModel`.
    target : str, optional
        By default this machine's (`host_target`).
    workloads : Path, optional
        An open JSON workload file instead of the zoo.
    seed : int, optional
        Of the search; by default a new one each time.
    min_repeat_ms, timeout : int
        Each candidate is timed for at least so long on a GPU, and by calls with flushed caches on a CPU; a
        build or a run is given up after `timeout` seconds.
    places : int
        On a CPU a candidate is timed on so many sets of buffers, and where these are several, on each by the
        median of a few calls (`wmsched.measure.buffer_offsets`); by TVM on 1, by one call.
    vector_math : bool
        Whether candidates have exp, tanh and the like in vectors on a CPU (`wmsched.ansor.codegen`),
        more of their loops too, and prefetches (`wmsched.codegen.pipeline`);
        whoever builds the best of them in the end should say the same.
    """

    name: str
    log: Path
    trials: int | None = None
    minutes: float | None = None
    cost_model: str | None = None
    resume: bool = False
    online: bool = False
    rounds: int | None = None
    diversity: float = DIVERSITY
    target: str | None = None
    workloads: Path | None = None
    seed: int | None = None
    min_repeat_ms: int = 60
    timeout: int = 15
    places: int = PLACES
    vector_math: bool = True
