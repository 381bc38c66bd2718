"""MetaSchedule's search over the tasks of a model, one round of one task after the other.

The spaces, the evolutionary search and the choice of the next task by its gradient are MetaSchedule's. What
differs from its own loop, which is C++ and cannot be stopped: a record is in the database as soon as its
program has been timed (MetaSchedule's first round writes nothing before every task has had it), what the
database has is not measured again, and the search ends between two programs when it is told to.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult

from wmsched.base.cores import usable_cores
from wmsched.base.errors import LogError
from wmsched.metaschedule.measure.measurer import Believed, Measurer
from wmsched.metaschedule.split_reduction import space_generator
from wmsched.metaschedule.tasks import FAILED, FEW, Task, _urgency, load_history
from wmsched.metaschedule.trace_reader import steps_of_schedule
from wmsched.schedules.database import mean, records_of, schedule_key
from wmsched.schedules.log_file import GrowingLog
from wmsched.search.budget import FirstRounds

logger = logging.getLogger("wmsched")
_quiet = logging.getLogger("wmsched.meta_search")  # MetaSchedule's own account of each round
_quiet.setLevel(logging.ERROR)

ATTEMPTS = 3  # rounds without a new schedule after which a task's space counts as used up
MANY = 1 << 30


class Search:
    """Tunes tasks, writing each measurement into a database.

    Parameters
    ----------
    tasks : sequence of Task
        Heaviest first, for that is the order in which they have their first rounds.
    target : tvm.target.Target
    database : tvm.s_tir.meta_schedule.database.Database
        What it has of these tasks is taken over.
    cost_model : tvm.s_tir.meta_schedule.cost_model.CostModel
    measurer : Measurer or Believed
    round_size : int
        Measurements of a task between two searches.
    seed : int
    learns : bool
        Whether the model learns from measurements: it is then given those of the database.
    strategy : callable () -> SearchStrategy, optional
        By default MetaSchedule's evolutionary search.
    started, measured : callable (task), callable (task, seconds), optional
        Told of each search, and of a round's measurements; NaN for a failed one.
    note : callable (text), optional
        Told of a task that is left out or used up.
    interrupted : callable (), optional
        Whether the user wants to leave at once.
    log : GrowingLog, optional
        Of the file that the database appends its records to.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        target: Any,
        database: Any,
        cost_model: Any,
        measurer: Measurer | Believed,
        *,
        round_size: int = 16,
        seed: int = 1,
        learns: bool = False,
        strategy: Callable[[], Any] = ms.search_strategy.EvolutionarySearch,
        started: Callable[[Task], None] = lambda task: None,
        measured: Callable[[Task, list[float]], None] = lambda task, seconds: None,
        note: Callable[[str], None] = logger.info,
        interrupted: Callable[[], bool] = lambda: False,
        log: GrowingLog | None = None,
    ) -> None:
        self.log, self._written = log, 0
        self.tasks, self.target, self.database = list(tasks), target, database
        self.cost_model, self.measurer, self.learns = cost_model, measurer, learns
        self.round_size, self.seed, self.strategy = round_size, seed, strategy
        self.started, self.measured, self.note, self.interrupted = started, measured, note, interrupted
        load_history(self.tasks, database)
        for task in self.tasks:
            task.rounds = [task.best] * -(-task.trials // round_size)

    def run(self, trials: int, stop: Callable[[], bool] = lambda: False, *, until: float = math.inf) -> int:
        """Search until so many programs are measured, `stop` says so, or no task has anything left.

        Where the search ends at a time (`until`, of `time.monotonic`), first rounds are as small as lets
        every task have one (`FirstRounds`).

        Returns
        -------
        done : int
            How many were measured.
        """
        done = 0
        first = FirstRounds(self.round_size, until)
        try:
            while done < trials and not stop():
                task = self._next()
                if task is None:
                    break
                self.started(task)
                fresh = sum(not each.rounds and not each.finished for each in self.tasks)
                size = first.count(fresh) if fresh else self.round_size
                measured = self._round(task, min(size, trials - done), stop)
                first.took(measured)
                done += measured
        finally:
            for task in self.tasks:
                if task.context is not None:
                    task.context.post_tuning()
                    task.context = None
        return done

    def choose(self, task: Task, count: int) -> tuple[list[Any], str]:
        """Candidates that a first round would measure, and why there are none; nothing is measured."""
        try:
            found = [candidate for candidate, _ in self._candidates(task, count)]
            return found, "" if found else "no schedule in its space"
        except Exception as error:  # the space or the search of this task; TVM's errors have no common base
            self._unless_interrupted()
            return [], str(error).strip()[-300:]
        finally:
            if task.context is not None:
                task.context.post_tuning()
                task.context = None

    def _next(self) -> Task | None:
        """The next without a round, or a few failures alone, else the one with the largest gradient."""
        alive = [task for task in self.tasks if not task.finished]
        fresh = [task for task in alive if not task.rounds]
        fresh = fresh or [task for task in alive if task.trials < FEW and not math.isfinite(task.best)]
        return fresh[0] if fresh else max(alive, key=_urgency, default=None)

    def _round(self, task: Task, count: int, stop: Callable[[], bool]) -> int:
        try:
            candidates = self._candidates(task, count)
        except Exception as error:  # the space or the search of this task; TVM's errors have no common base
            self._unless_interrupted()
            task.finished = True
            self.note(f"{task.name}: left as it is: {str(error).strip()[-300:]}")
            return 0
        if not candidates:
            task.finished = True
            self.note(f"{task.name}: no further schedules after {task.trials}")
            return 0
        done: list[Any] = []
        results: list[Any] = []
        batch = self.measurer.measure([candidate for candidate, _ in candidates])
        try:
            for (candidate, key), (_, result) in zip(candidates, batch):
                self._unless_interrupted()  # Ctrl-C reaches the workers too: that result is no failure
                self._record(task, candidate, key, result)
                done.append(candidate)
                results.append(result)
                if stop():
                    break
        finally:
            batch.close()
            task.rounds.append(task.best)
            self.measured(task, [mean(result.run_secs or ()) for result in results])
        if done:
            task.context.search_strategy.notify_runner_results(done, results)
            self.cost_model.update(task.context, done, results)
        return len(done)

    def _unless_interrupted(self) -> None:
        if self.interrupted():
            raise KeyboardInterrupt

    def _record(self, task: Task, candidate: Any, key: bytes, result: Any) -> None:
        times = [float(t) for t in result.run_secs or ()]
        trace, arguments = candidate.sch.trace, candidate.args_info
        entry = TuningRecord(trace, task.workload, times or [FAILED], self.target, arguments)
        self.database.commit_tuning_record(entry)
        self._written += 1
        if self.log is not None:
            self.log.check(self._written)
        task.known.add(key)
        task.take(mean(times))

    def _candidates(self, task: Task, count: int) -> list[tuple[Any, bytes]]:
        """Up to `count` schedules that are not in the database, each with its key."""
        if task.context is None:
            task.context = self._prepare(task)
        for _ in range(ATTEMPTS):
            proposed = task.context.generate_measure_candidates()
            if proposed is None:
                return []
            found: dict[bytes, Any] = {}
            for candidate in proposed:
                try:
                    key = schedule_key(steps_of_schedule(candidate.sch))
                except LogError:  # a trace of another form: it cannot be told apart from others, and is left
                    continue
                if key not in task.known:
                    found.setdefault(key, candidate)
            if found:
                return [(candidate, key) for key, candidate in found.items()][:count]
        return []

    def _prepare(self, task: Task) -> Any:
        context = ms.TuneContext(
            task.mod,
            target=self.target,
            space_generator=space_generator(self.target),
            search_strategy=self.strategy(),
            task_name=task.name,
            rand_state=1 + (self.seed + 7919 * self.tasks.index(task)) % ((1 << 31) - 2),
            num_threads=usable_cores(),
            logger=_quiet,
        )
        context.pre_tuning(
            max_trials=MANY,
            num_trials_per_iter=self.round_size,
            design_spaces=context.generate_design_space(),
            database=self.database,
            cost_model=self.cost_model,
        )
        if self.learns and task.known:
            own = records_of(self.database, task.workload)
            times = [[float(x) for x in record.run_secs or ()] for record in own]
            results = [
                RunnerResult(None, "failed before") if math.isnan(mean(each)) else RunnerResult(each, None)
                for each in times
            ]
            self.cost_model.update(context, [record.as_measure_candidate() for record in own], results)
        return context
