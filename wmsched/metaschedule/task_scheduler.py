"""MetaSchedule task scheduler in Python: one round of one task after the other.

The design spaces, the evolutionary search and the choice of the next task by its gradient are MetaSchedule's.
MetaSchedule's own loop is C++ and cannot be stopped. This one writes a record as soon as its program is
timed, does not measure the database's schedules again, and can stop between two programs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult

from wmsched.base.cores import usable_cores
from wmsched.base.errors import LogError
from wmsched.metaschedule.measure.measurer import Believed, Measurer
from wmsched.metaschedule.rules.spaces import space_generator
from wmsched.metaschedule.tasks import FAILED_SECONDS, Task, load_history
from wmsched.metaschedule.trace_reader import steps_of_schedule
from wmsched.schedules.database import mean, records_of, rescale, schedule_key
from wmsched.schedules.log_file import GrowingLog
from wmsched.search.budget import FirstRounds
from wmsched.search.sharing import next_task

logger = logging.getLogger("wmsched")
_quiet = logging.getLogger("wmsched.meta_search")  # MetaSchedule's log of each round
_quiet.setLevel(logging.ERROR)

MAX_EMPTY_SAMPLES = 3  # in a row without a new schedule, after which a task's space is exhausted
UNLIMITED_TRIALS = 1 << 30


class Search:
    """Task scheduler that writes each measurement into a database.

    >>> search = Search(tasks, target, database, cost_model, Measurer(target))
    >>> measured = search.run(64 * len(tasks))

    Parameters
    ----------
    tasks : sequence of Task
        Heaviest first: the order of their first rounds.
    target : tvm.target.Target
    database : tvm.s_tir.meta_schedule.database.Database
        Its records of these tasks count as measured.
    cost_model : tvm.s_tir.meta_schedule.cost_model.CostModel
    measurer : Measurer or Believed
    round_size : int
        Trials of a task in a round.
    seed : int
    learns : bool
        Whether the model learns from measurements; it then gets the database's too.
    strategy : callable () -> SearchStrategy, optional
        By default MetaSchedule's evolutionary search.
    started, measured : callable (task), callable (task, seconds), optional
        Called before each round, and after it with its measurements; NaN for a failure.
    note : callable (text), optional
        Called with a note on a task that is skipped or exhausted.
    interrupted : callable (), optional
        Returns whether the user pressed Ctrl-C.
    log : GrowingLog, optional
        Watches the file to which the database appends its records.
    reopen : callable () -> Database, optional
        Reads the database again. With it and `log`, records are corrected when the measurer revises the
        reference that they were timed beside; `database` is another object then.
    corrected : callable (task), optional
        Called after a task's records were corrected.
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
        reopen: Callable[[], Any] | None = None,
        corrected: Callable[[Task], None] = lambda task: None,
    ) -> None:
        self.log, self._written = log, 0
        self.reopen, self.corrected = reopen, corrected
        self._programs: dict[str, tuple[Task, int, int]] = {}  # task, trial and line of each
        self._earlier = 0 if log is None else _lines_of(log.path)
        self._stale = False  # whether the file has corrections that `database` lacks
        self._planned = math.inf
        self.tasks, self.target, self.database = list(tasks), target, database
        self.cost_model, self.measurer, self.learns = cost_model, measurer, learns
        self.round_size, self.seed, self.strategy = round_size, seed, strategy
        self.started, self.measured, self.note, self.interrupted = started, measured, note, interrupted
        load_history(self.tasks, database)
        for task in self.tasks:
            task.rounds = [task.best] * -(-task.trials // round_size)
            task.ends = [len(task.times)] * len(task.rounds)

    def run(self, trials: int, stop: Callable[[], bool] = lambda: False, *, until: float = math.inf) -> int:
        """Search until `trials` programs are measured, `stop` returns True, or all tasks are exhausted.

        A deadline `until` (of `time.monotonic`) makes first rounds small enough for every task to have one
        (`FirstRounds`).

        Returns
        -------
        done : int
            Number of measured programs.

        Raises
        ------
        KeyboardInterrupt
            `interrupted` returned True.
        """
        done = 0
        first = FirstRounds(self.round_size, until)
        if trials < UNLIMITED_TRIALS:
            self._planned = trials + sum(task.trials for task in self.tasks)
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
        """Return the task of the next round (`wmsched.search.sharing.next_task`)."""
        return next_task(self.tasks, self.round_size, self._planned)

    def _round(self, task: Task, count: int, stop: Callable[[], bool]) -> int:
        try:
            candidates = self._candidates(task, count)
        except Exception as error:  # of this task's space or search; TVM's errors have no common base
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
                self._unless_interrupted()  # Ctrl-C also kills the workers: such a result is no failure
                self._record(task, candidate, key, result)
                done.append(candidate)
                results.append(result)
                if stop():
                    break
        finally:
            batch.close()
            task.end_round()
            self.measured(task, [mean(result.run_secs or ()) for result in results])
            self._correct()  # what speaks against the last program's reference comes with a later one
        if done:
            task.context.search_strategy.notify_runner_results(done, results)
            self.cost_model.update(task.context, done, results)
        if self._stale:
            self._reopen()
        return len(done)

    def _unless_interrupted(self) -> None:
        if self.interrupted():
            raise KeyboardInterrupt

    def _record(self, task: Task, candidate: Any, key: bytes, result: Any) -> None:
        times = [float(t) for t in result.run_secs or ()]
        trace, arguments = candidate.sch.trace, candidate.args_info
        entry = TuningRecord(trace, task.workload, times or [FAILED_SECONDS], self.target, arguments)
        self.database.commit_tuning_record(entry)
        self._written += 1
        if self.log is not None:
            self.log.check(self._written)
        task.known.add(key)
        task.take(mean(times))
        if times and (program := getattr(self.measurer, "latest", "")):
            self._programs[program] = task, len(task.times) - 1, self._earlier + self._written - 1
        self._correct()

    def _correct(self) -> None:
        """Correct the records of programs whose reference was revised, in their file and in their tasks."""
        corrections = getattr(self.measurer, "corrections", None)
        if corrections is None or self.log is None or self.reopen is None:
            return
        factors = corrections.due()  # a program that tests the machine has no record
        due = [(*self._programs[name], factors[name]) for name in factors if name in self._programs]
        if not due:
            return
        rescale(self.log.path, {line: factor for _, _, line, factor in due})
        self.log.rewritten()
        self._stale = True
        tasks = {id(task): task for task, *_ in due}
        for task in tasks.values():
            task.correct({trial: factor for one, trial, _, factor in due if one is task})
            factor = next(factor for one, _, _, factor in due if one is task)
            logger.info("%s: the reference was timed in a disturbed spell: times %.3g", task.name, factor)
            self.corrected(task)

    def _reopen(self) -> None:
        """Read the corrected database, and have each task's search begin with it."""
        assert self.reopen is not None
        self.database, self._stale = self.reopen(), False
        for task in self.tasks:
            task.workload = self.database.commit_workload(task.mod)
            if task.context is not None:
                task.context.post_tuning()
                task.context = None

    def _candidates(self, task: Task, count: int) -> list[tuple[Any, bytes]]:
        """Return up to `count` schedules that are not in the database, with their keys."""
        if task.context is None:
            task.context = self._prepare(task)
        for _ in range(MAX_EMPTY_SAMPLES):
            proposed = task.context.generate_measure_candidates()
            if proposed is None:
                return []
            found: dict[bytes, Any] = {}
            for candidate in proposed:
                try:
                    key = schedule_key(steps_of_schedule(candidate.sch))
                except LogError:  # a trace of unknown form has no key
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
            rand_state=1 + (self.seed + 7919 * self.tasks.index(task) + task.prepared) % ((1 << 31) - 2),
            num_threads=usable_cores(),
            logger=_quiet,
        )
        task.prepared += 1  # a search that begins again draws other schedules
        context.pre_tuning(
            max_trials=UNLIMITED_TRIALS,
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


def _lines_of(path: Path) -> int:
    """Return the number of a file's lines; 0 without a file."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)
