"""AutoScheduler's task scheduler with a world model: `TaskScheduler` and `WorldModelCostModel`.

>>> from wmsched.ansor.task_scheduler import TaskScheduler
>>> tuner = TaskScheduler(tasks, task_weights, cost_model="x86-avx512")
>>> tuner.tune(auto_scheduler.TuningOptions(num_measure_trials=64))

A world model spends its trials in several rounds. Each round starts from the fastest schedules of the one
before, and each candidate is timed on several sets of buffers. On a processor the generations are transform
steps, made without TVM. Candidates and the builds of `ApplyHistoryBest` have vector code for exp, tanh etc.

Importing this module imports AutoScheduler's TVM (see `wmsched.toolchain.resolve`).
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from wmsched.base.cores import name_threads, requested_threads, too_many_threads
from wmsched.measure.corrections import Corrections
from wmsched.measure.malloc_env import steady_buffers
from wmsched.schedules.log_file import broken, is_json, mend
from wmsched.search.budget import round_size
from wmsched.search.sharing import MAX_SHARE
from wmsched.toolchain.resolve import autoscheduler_tvm, host_triple, is_cpu

tvm = autoscheduler_tvm()

from tvm import auto_scheduler  # noqa: E402
from tvm.auto_scheduler.cost_model.cost_model import CostModel  # noqa: E402

from wmsched.ansor.callbacks import calls, logs_of, watch  # noqa: E402
from wmsched.ansor.codegen import builders_with_vector_math, vector_math  # noqa: E402
from wmsched.ansor.corrections import Ledger  # noqa: E402
from wmsched.ansor.cost_model import WorldModelCostModel  # noqa: E402
from wmsched.ansor.relay import ApplyHistoryBest, buildable  # noqa: E402
from wmsched.ansor.runner import several_places  # noqa: E402
from wmsched.ansor.workers import kept_workers  # noqa: E402
from wmsched.measure.buffer_offsets import PLACES  # noqa: E402
from wmsched.toolchain.targets import foreign_triple, not_run_here  # noqa: E402

__all__ = ["ApplyHistoryBest", "TaskScheduler", "WorldModelCostModel", "vector_math"]

logger = logging.getLogger("wmsched")
UNLIMITED_TRIALS = 1 << 30  # of a run that time ends
watch()


class TaskScheduler(auto_scheduler.TaskScheduler):
    """AutoScheduler's `TaskScheduler` with a ``cost_model=``; without one, it searches as upstream does.

    >>> tuner = TaskScheduler(tasks, task_weights, cost_model="x86-avx512", seed=1)
    >>> tuner.tune(auto_scheduler.TuningOptions(num_measure_trials=64 * len(tasks)))

    Parameters
    ----------
    tasks, task_weights, objective_func, strategy, load_model_file, load_log_file, alpha, beta, gamma, \
backward_window_size, callbacks
        As upstream. ``load_model_file`` is a bundle folder when `cost_model` is a world model. Tasks whose
        layout rewrite TVM cannot build are tuned without it (`relay.buildable`).
    cost_model : WorldModelCostModel, WorldModel, str, Path or any auto_scheduler.CostModel, optional
        A str or Path is the name or folder of a bundle.
    online, diversity
        As in `WorldModelCostModel`; no effect if `cost_model` is one.
    seed : int, optional
        Seed of the search policies, 1 or more: task i gets ``seed + i``.
    keep_workers : bool
        Whether local builders and runners keep their processes during one `tune` (`kept_workers`).
    places : int, optional
        Sets of buffers on which a local runner times each candidate (`several_places`). By default 3 for a
        world model on a processor, else upstream's 1.
    paired : bool
        Whether a candidate is timed together with its task's first one (`wmsched.measure.paired`). The ratio
        cancels a shared machine's load. No effect on one set of buffers.
    rounds : int, optional
        Search rounds for a task's share of the trials. By default as in `wmsched tune` for a world model
        (`wmsched.search.budget`: 64 trials are 4 rounds of 16), and as upstream for TVM's models. The tuning
        options' `num_measures_per_round` (default 64) stays the maximum of a round.
    vector_math : bool, optional
        Whether local builders compile exp, log, tanh, erf and small powers, and loops, to vector code, and
        add prefetches to products (`codegen.vector_math`). By default on for a world model on a processor.
        Build the final library the same way, with `ApplyHistoryBest`.
    search : str
        "steps": a world model searches a processor's tasks by their transform steps (`search_policy`), with
        AutoScheduler's `search_policy_params`. "tvm": TVM's evolutionary search asks the model for scores.
        GPU tasks and unknown C++ measure callbacks always use the second.

    Raises
    ------
    ValueError
        `search`, `seed`, `places` or `rounds` is out of range.
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        task_weights: Sequence[float] | None = None,
        objective_func: Callable[..., float] | None = None,
        strategy: str = "gradient",
        load_model_file: str | None = None,
        load_log_file: str | None = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[Any] | None = None,
        *,
        cost_model: Any = None,
        online: bool = False,
        diversity: float = 1.0,
        seed: int | None = None,
        keep_workers: bool = True,
        places: int | None = None,
        paired: bool = True,
        rounds: int | None = None,
        vector_math: bool | None = None,
        search: str = "steps",
    ) -> None:
        if search not in ("steps", "tvm"):
            raise ValueError(f"search={search!r}: it is 'steps' or 'tvm'")
        if cost_model is not None and not isinstance(cost_model, CostModel):
            cost_model = WorldModelCostModel(cost_model, online=online, diversity=diversity)
        if seed is not None and seed < 1:
            raise ValueError(f"seed={seed}: a seed is 1 or more; TVM takes 0 for none")
        for name, count in (("places", places), ("rounds", rounds)):
            if count is not None and count < 1:
                raise ValueError(f"{name}={count}: at least 1, or None for the default")
        self.cost_model = cost_model
        self.seed = seed
        self.keep_workers = keep_workers
        self.rounds = rounds
        self.paired = paired
        self.search = search
        ours = isinstance(cost_model, WorldModelCostModel) and all(is_cpu(task.target) for task in tasks)
        self.places = places if places is not None else PLACES if ours else 1
        self.vector_math = ours if vector_math is None else vector_math
        self.ledger: Ledger | None = None
        if ours and (wrong := too_many_threads()):
            logger.warning("wmsched: %s", wrong)
        super().__init__(
            [buildable(task) for task in tasks],
            task_weights, objective_func, strategy, load_model_file, load_log_file,
            alpha, beta, gamma, backward_window_size, callbacks,
        )  # fmt: skip

    def tune(
        self,
        tune_option: Any,
        search_policy: Any = "default",
        search_policy_params: dict[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Tune the tasks together.

        Parameters
        ----------
        tune_option, search_policy, search_policy_params, adaptive_training, per_task_early_stopping
            As upstream. With a `cost_model`, `search_policy` must be "default" or "sketch".

        Raises
        ------
        ValueError
            `search_policy` names another cost model, or there are fewer trials than tasks.
        TooManyFailed
            More than 150 candidates failed and none of any task ran, or as many in a row of tasks that ran
            before.
        """
        self._repair_logs(tune_option)  # before anything reads them
        if self.cost_model is not None:
            if search_policy not in ("default", "sketch"):
                raise ValueError(
                    f"search_policy={search_policy!r} brings a cost model of its own, and cost_model= was "
                    'given too: leave search_policy at "default", or give no cost_model'
                )
            tune_option = self._in_rounds(tune_option)
            if isinstance(self.cost_model, WorldModelCostModel) and self.search == "steps":
                self.ledger = Ledger(Corrections(), logs_of(tune_option.measure_callbacks or []))
            search_policy = self._make_policies(tune_option, search_policy_params)
        if isinstance(self.cost_model, WorldModelCostModel):
            self._warn_of_targets(tune_option.runner)
            name_threads(tvm)
            if isinstance(tune_option.runner, auto_scheduler.LocalRunner):
                self.cost_model.threads = requested_threads(os.environ)
        # Works around TVM 0.8, which spells the fourth parameter `adapative_training`: pass it by position.
        with (
            kept_workers() if self.keep_workers else nullcontext(),
            several_places(
                self.places,
                paired=self.paired,
                corrections=None if self.ledger is None else self.ledger.corrections,
            ),
            builders_with_vector_math(self.vector_math),
            steady_buffers(),
        ):
            super().tune(
                tune_option, search_policy, search_policy_params, adaptive_training, per_task_early_stopping
            )

    def _tune_task(self, task_idx: int) -> None:
        """Tune a task for a round, or another one if it has its share; then correct what is known wrong."""
        if isinstance(self.cost_model, WorldModelCostModel) and self.strategy == "gradient":
            task_idx = self._within_share(task_idx)
        super()._tune_task(task_idx)
        for policy in [] if self.ledger is None else self.ledger.correct():
            self._correct(next(k for k, one in enumerate(self.search_policies) if one is policy))

    def _within_share(self, chosen: int) -> int:
        """Return `chosen`, or the task of most promise if it has its share of the trials (`search.sharing`).

        A share counts for a task that has a smaller one of the model's time.
        """
        count, size = len(self.tasks), self.num_measures_per_round
        if not all(self.task_cts) or not all(cost < 1e9 for cost in self.best_costs):
            return chosen
        planned = float(self.tune_option.num_measure_trials)
        done = size * sum(self.task_cts)
        most = MAX_SHARE * (planned if planned < UNLIMITED_TRIALS else done + size)
        seconds = [self._weight(place) * float(self.best_costs[place]) for place in range(count)]

        def within(place: int) -> bool:
            few = size * (self.task_cts[place] + 1) <= most
            return few or seconds[place] >= MAX_SHARE * sum(seconds)

        if within(chosen):
            return chosen
        others = [place for place in range(count) if place not in self.dead_tasks and within(place)]
        return max(others, key=lambda place: seconds[place] / self.task_cts[place], default=chosen)

    def _weight(self, place: int) -> float:
        """By how much the objective changes with a task's latency, as upstream's gradient has it."""
        delta = 1e-4
        costs = list(self.best_costs)
        costs[place] -= delta
        return float((self._compute_score(self.best_costs) - self._compute_score(costs)) / delta)

    def _correct(self, place: int) -> None:
        """Take over a task's corrected times, and tell the callbacks that have a method `corrected`."""
        progress = self.search_policies[place].progress
        before, after = float(self.best_costs[place]), progress.best
        rounds = [one if math.isfinite(one) else 1e10 for one in progress.rounds]
        known = self.task_costs_history[place]
        scaled = [one * after / before if one < 1e9 else one for one in known]
        self.task_costs_history[place] = rounds if len(rounds) == len(known) else scaled
        self.best_costs[place] = after
        self.cur_score = self._compute_score(self.best_costs)
        if self.ct > self.best_ct:  # scores before the correction are of another scale
            self.best_score = self.cur_score
        for callback in self.callbacks:
            if hasattr(callback, "corrected"):
                callback.corrected(self, place)
        for call in self.search_policies[place].callbacks:
            if getattr(call, "log", None) is not None:
                call.log.rewritten()

    def _repair_logs(self, tune_option: Any) -> None:
        """Move the broken lines of a killed run or a full disk to NAME.bad; TVM stops at them."""
        written = logs_of(tune_option.measure_callbacks or [])
        for name in dict.fromkeys([*written, *([self.load_log_file] if self.load_log_file else [])]):
            path = Path(name)
            try:
                reasons = mend(path, check=is_json) if path.is_file() and broken(path) else []
            except OSError as error:  # a log that is only read may belong to another user
                logger.warning("wmsched: %s is not mended: %s", path, error)
                continue
            if reasons:
                logger.warning(
                    "wmsched: %d lines of %s were no records, the first: %s; they are in %s.bad now",
                    len(reasons),
                    path,
                    reasons[0],
                    path,
                )

    def _warn_of_targets(self, runner: Any) -> None:
        """Warn if a target's programs cannot run on this machine's processor."""
        if not isinstance(runner, auto_scheduler.LocalRunner):  # programs run on another machine
            return
        for target in {str(task.target): task.target for task in self.tasks}.values():
            if triple := foreign_triple(target):
                logger.warning(
                    "wmsched: target %s: TVM builds for %s where a target has no -mtriple, and nothing "
                    "will run here: add -mtriple=%s, or take wmsched.toolchain.resolve.host_target()",
                    target,
                    triple,
                    host_triple(),
                )
            elif wrong := not_run_here(target):
                logger.warning("wmsched: target %s: %s", target, wrong)

    def _in_rounds(self, tune_option: Any) -> Any:
        """Return `tune_option` with its round size limited to a task's share of the trials over `rounds`."""
        if self.rounds is None and not isinstance(self.cost_model, WorldModelCostModel):
            return tune_option
        size = round_size(tune_option.num_measure_trials // len(self.tasks), self.rounds)
        if size >= tune_option.num_measures_per_round:
            return tune_option
        return auto_scheduler.TuningOptions(
            num_measure_trials=tune_option.num_measure_trials,
            early_stopping=tune_option.early_stopping,
            num_measures_per_round=size,
            verbose=tune_option.verbose,
            builder=tune_option.builder,
            runner=tune_option.runner,
            measure_callbacks=list(tune_option.measure_callbacks or []),
        )

    def _make_policies(self, tune_option: Any, params: dict[str, Any] | None) -> list[Any]:
        """Return one policy a task; a list of policies bypasses upstream's `make_search_policies`."""
        model, callbacks = self.cost_model, None
        share = min(tune_option.num_measures_per_round, tune_option.num_measure_trials // len(self.tasks))
        if isinstance(model, WorldModelCostModel):
            model.round_size = max(1, share)
        if self.load_model_file and os.path.exists(self.load_model_file) and hasattr(model, "load"):
            model.load(self.load_model_file)
        elif self.load_log_file and hasattr(model, "update_from_file"):
            model.update_from_file(self.load_log_file)
        if self.load_log_file:
            callbacks = [auto_scheduler.PreloadMeasuredStates(self.load_log_file)]
        seeds = [None if self.seed is None else self.seed + place for place in range(len(self.tasks))]
        searches = self._world_model_policies(tune_option, params, seeds, callbacks)
        return [
            step_search
            or auto_scheduler.SketchPolicy(
                task,
                model,
                params=None if params is None else dict(params),  # TVM adds the defaults in place
                seed=seed,
                verbose=tune_option.verbose,
                init_search_callbacks=callbacks,
            )
            for task, seed, step_search in zip(self.tasks, seeds, searches)
        ]

    def _world_model_policies(
        self,
        tune_option: Any,
        params: dict[str, Any] | None,
        seeds: Sequence[int | None],
        callbacks: list[Any] | None,
    ) -> list[Any]:
        """Return a `SearchPolicy` for each task that can have one, else None."""
        model = self.cost_model
        if self.search == "tvm" or not isinstance(model, WorldModelCostModel):
            return [None] * len(self.tasks)
        if model.verify:
            logger.warning("wmsched: verify=True is done in TVM's search, which takes the place of ours")
            return [None] * len(self.tasks)
        listeners = calls(tune_option.measure_callbacks or [])
        if listeners is None:
            logger.warning("wmsched: a measure callback is not known here: TVM searches by itself")
            return [None] * len(self.tasks)
        from wmsched.ansor.search_policy import SearchPolicy
        from wmsched.search.failure_budget import Failures
        from wmsched.search.history import History

        known, failures = History(), Failures()
        if self.load_log_file and os.path.exists(self.load_log_file):  # a script's first run has none
            known = History.read_log(self.load_log_file)[0]
        return [
            SearchPolicy(
                task,
                model,
                tune_option.builder,
                tune_option.runner,
                listeners,
                seed=seed,
                verbose=tune_option.verbose,
                measured=known.of((str(task.workload_key), str(task.target))),
                params=params,
                failures=failures,
                init_search_callbacks=callbacks,
                ledger=self.ledger,
            )
            if is_cpu(task.target)
            else None
            for task, seed in zip(self.tasks, seeds)
        ]
