"""World model as an AutoScheduler cost model: candidates in, scores out; it never raises into a search.

Use it through `wmsched.ansor.task_scheduler`.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from wmsched.base.gc import paused
from wmsched.model.bundles import AVX2_BUNDLE, default_bundle, has_avx2
from wmsched.schedules.steps import parse_record
from wmsched.search.diversity import Niches, signature
from wmsched.search.guarded_scoring import load_world_model, score_around_failures
from wmsched.search.history import History, Key, Pair, Steps
from wmsched.search.selection import NEUTRAL, SelectionMap
from wmsched.toolchain.resolve import autoscheduler_tvm, is_cpu

autoscheduler_tvm()

from tvm import auto_scheduler  # noqa: E402
from tvm.auto_scheduler import _ffi_api as ansor_ffi  # noqa: E402
from tvm.auto_scheduler.cost_model.cost_model import PythonBasedModel  # noqa: E402
from tvm.auto_scheduler.loop_state import StateObject  # noqa: E402
from tvm.auto_scheduler.measure import MeasureInput  # noqa: E402

from wmsched.ansor.compute_dag import initial_text, workload_from_task  # noqa: E402

logger = logging.getLogger("wmsched")

OBSERVATIONS = "observations.json"


class _Task:
    """State of one search task: scorer, niches, and this round's scores."""

    def __init__(self, scorer: Any, niches: Niches) -> None:
        self.scorer = scorer  # None: making it failed; every candidate gets the neutral score
        self.niches = niches
        self.scores: dict[Any, float] = {}  # this round's raw scores, by log line or key
        self.families: dict[Any, tuple] = {}
        self.fitted: SelectionMap | None = None


class WorldModelCostModel(PythonBasedModel):
    """AutoScheduler cost model that scores candidates with a `WorldModel`.

    >>> model = WorldModelCostModel("x86-avx512", online=True)
    >>> tuner = TaskScheduler(tasks, task_weights, cost_model=model)

    It never raises into the search. Each kind of failure is logged once with its reason and counted in
    `problems`. Candidates that the model fails on rank last. If it fails on all, all scores are equal and
    the search is random.

    Parameters
    ----------
    world_model : WorldModel, str or Path
        The model, or the name or folder of a bundle.
    online : bool
        Whether the model also learns from this run's measurements.
    diversity : float
        How much candidates of one family discount each other (`diversity.Niches`); 0: not at all.
    keep_per_family : int, optional
        Candidates of a family without discount; by default an eighth of `round_size`.
    round_size : int
        Candidates measured a round; `TaskScheduler` sets it.
    verify : bool, optional
        Whether to lower the best of each batch and check them against the device's limits (threads, shared
        memory). By default on for GPU targets, whose random schedules often exceed the limits.
    """

    def __init__(
        self,
        world_model: Any,
        *,
        online: bool = False,
        diversity: float = 1.0,
        keep_per_family: int | None = None,
        round_size: int = 64,
        verify: bool | None = None,
    ) -> None:
        # Made only to refuse bad values here instead of in the first round.
        Niches(strength=diversity, keep=1 if keep_per_family is None else keep_per_family)
        self.world_model = load_world_model(world_model, online=online)
        self.online = online
        self.diversity = diversity
        self.keep_per_family = keep_per_family
        self.round_size = round_size
        self.verify = verify
        self.threads = 0  # threads that a CPU's candidates run on; 0: as the task says
        self.problems: dict[str, int] = {}
        self._warned: set[str] = set()  # warnings about targets that were logged
        self._tasks: dict[Key, _Task] = {}
        self._observed = History()

        # Works around TVM 0.16's PythonBasedModel, which fails on the null buffer of an empty batch and
        # lets errors out. Remove when it does neither.
        def fill(compute: Callable[[Any, Any], NDArray[np.float32]]) -> Callable[[Any, Any, Any], None]:
            def into(task: Any, states: Any, buffer: Any) -> None:
                scores = compute(task, states)
                if scores.size:
                    pointer = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_float))
                    np.ctypeslib.as_array(pointer, shape=scores.shape)[:] = scores

            return into

        self.__init_handle_by_constructor__(
            ansor_ffi.PythonBasedModel,
            lambda inputs, results: self.update(inputs, results),
            fill(lambda task, states: self.predict(task, states)),
            fill(lambda task, states: self.predict_stages(task, states)),
        )

    def predict(self, task: Any, states: Sequence[Any]) -> NDArray[np.float32]:
        """Return scores float32 [len(states)] in (0, 1], -inf for an invalid state; never raises."""
        return self._guarded(task, len(states), lambda: self._predict(task, states))

    def predict_steps(
        self, task: Any, keys: Sequence[bytes], schedules: Sequence[Any]
    ) -> NDArray[np.float32]:
        """Return scores like `predict`, for transform steps without a TVM state; `keys` identify them."""

        def score() -> NDArray[np.float32]:
            kept = self._task(task)
            if kept.scorer is None:
                return np.full(len(keys), NEUTRAL, dtype=np.float32)
            return self._shared(task, kept, keys, dict(zip(keys, schedules)).__getitem__)

        return self._guarded(task, len(keys), score)

    def predict_stages(self, task: Any, states: Sequence[Any]) -> NDArray[np.float32]:
        """Return float32 [2 N]: the scores, then each state's count of scored stages, always 0."""
        return np.concatenate([self.predict(task, states), np.zeros(len(states), dtype=np.float32)])

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """End a round: clear its scores and, if online, learn from its measurements; never raises."""
        try:
            for kept in self._tasks.values():
                kept.scores.clear()
                kept.families.clear()
                kept.niches = self._niches()
            if not self.online or not len(inputs):
                return
            measured = History()
            for entry, result in zip(inputs, results):
                record = parse_record(_dump(entry, result), place="a measurement of this run")
                key = (record.workload_key, str(entry.task.target))
                measured.add(key, [(record.steps, record.measurement.seconds)])
            self._observe(measured)
        except Exception as error:
            self._note("learning from measurements", None, error)

    def update_from_file(self, file_name: str | os.PathLike[str], n_lines: int | None = None) -> None:
        """Learn from the records of a log, if online.

        Broken lines are counted; the first is logged with its line number.

        Parameters
        ----------
        file_name : path
            An AutoScheduler log, one JSON object a line.
        n_lines : int, optional
            Read the first `n_lines` records only.
        """
        if not self.online:
            return
        if not os.path.exists(file_name):  # as upstream: the first run of a script has none yet
            logger.warning("wmsched: there is no log %s to learn from", file_name)
            return
        measured, taken, bad = History.read_log(file_name, limit=n_lines)
        self._observe(measured)
        logger.info("wmsched: %d records loaded from %s", taken, file_name)
        if bad:
            self.problems["log lines not read"] = self.problems.get("log lines not read", 0) + len(bad)
            logger.warning(
                "wmsched: %d lines of %s could not be read; the first: %s", len(bad), file_name, bad[0]
            )

    def save(self, file_name: str | os.PathLike[str]) -> None:
        """Save the model as a bundle folder, with its online observations in `OBSERVATIONS`."""
        folder = Path(file_name)
        self.world_model.save_pretrained(folder)
        self._observed.save(folder / OBSERVATIONS)

    def load(self, file_name: str | os.PathLike[str]) -> None:
        """Load the model that `save` wrote, or any bundle by its folder or name."""
        self.world_model = load_world_model(file_name, online=self.online)
        self._tasks.clear()
        self._observed = History()
        self._observe(History.load(Path(file_name) / OBSERVATIONS))

    # -- one batch

    def _guarded(
        self, task: Any, count: int, score: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the scores of a batch; after an error, log it and return `count` neutral scores."""
        if count == 0:
            return np.zeros(0, dtype=np.float32)
        try:
            with paused():
                return score()
        except Exception as error:
            self._note("scoring a batch", task, error)
            return np.full(count, NEUTRAL, dtype=np.float32)

    def _predict(self, task: Any, states: Sequence[Any]) -> NDArray[np.float32]:
        kept = self._task(task)
        lines = self._lines(task, states)
        # If no line could be written the fault is ours; -inf for a whole population would hang AutoScheduler.
        if kept.scorer is None or not any(lines):
            return np.full(len(states), NEUTRAL, dtype=np.float32)
        scores = self._shared(task, kept, lines, lambda line: orjson.loads(line)[1][1])
        if self._verifies(task):
            self._verify(task, states, scores)
        return scores

    def _shared(
        self, task: Any, kept: _Task, lines: Sequence[Any], steps_of: Callable[[Any], Any]
    ) -> NDArray[np.float32]:
        """Return scores of candidates by key, -inf for None, with the diversity discount applied."""
        fresh = {line: None for line in lines if line is not None and line not in kept.scores}
        if fresh:
            steps = [steps_of(line) for line in fresh]

            def failed(error: Exception, last: bool) -> None:
                self._note("scoring a batch" if last else "scoring a candidate", task, error)

            kept.scores.update(zip(fresh, score_around_failures(kept.scorer.score, steps, failed)))
            if self.diversity:
                kept.families.update(zip(fresh, map(signature, steps)))
        raw = np.array([np.nan if line is None else kept.scores[line] for line in lines])
        opinion = not np.isnan(raw).all()
        if not opinion:  # the search is random then, and no family has a best candidate
            scores = np.full(len(lines), NEUTRAL, dtype=np.float32)
        else:
            if kept.fitted is None:
                kept.fitted = SelectionMap.fit(raw)
            scores = kept.fitted(raw)
        valid = [place for place, line in enumerate(lines) if line is not None]
        if self.diversity and opinion and valid:
            keys = [lines[place] for place in valid]
            scores[valid] = kept.niches.share(keys, [kept.families[key] for key in keys], scores[valid])
        scores[[line is None for line in lines]] = -np.inf
        return scores

    def _lines(self, task: Any, states: Sequence[Any]) -> list[str | None]:
        """Return each candidate as a log's "i", [task, state]; None where TVM cannot write it."""
        lines: list[str | None] = []
        for state in states:
            try:
                if type(state) is not StateObject:  # getattr on a StateObject is slow
                    state = getattr(state, "state_object", state)
                    if state is None:  # a null, on which TVM's writer would crash
                        raise ValueError("the state is undefined")
                # str: TVM returns a subclass that orjson refuses and that holds C++ memory
                lines.append(str(ansor_ffi.SerializeMeasureInput(MeasureInput(task, state))))
            except Exception as error:
                self._note("writing down a candidate", task, error)
                lines.append(None)
        return lines

    def _verifies(self, task: Any) -> bool:
        return self.verify if self.verify is not None else not is_cpu(task.target)

    def _verify(self, task: Any, states: Sequence[Any], scores: NDArray[np.float32]) -> None:
        """Set the score to -inf for the best candidates that TVM cannot lower within the device's limits."""
        wanted, order, start = 2 * self.round_size, np.argsort(-scores, kind="stable"), 0
        while wanted > 0 and start < len(order):
            chosen = [int(place) for place in order[start : start + wanted] if np.isfinite(scores[place])]
            if not chosen:
                return
            from_states = auto_scheduler.feature.get_per_store_features_from_states
            for place, feature in zip(chosen, from_states([states[place] for place in chosen], task)):
                if feature.min() == feature.max() == 0:  # all zero marks a failure, as in XGBModel
                    scores[place] = -np.inf
                else:
                    wanted -= 1
            start += len(chosen)

    # -- tasks and what is learnt about them

    def _task(self, task: Any) -> _Task:
        key = (str(task.workload_key), str(task.target))
        if key not in self._tasks:
            scorer = None
            try:
                self._warn_of_target(task)
                threads = self.threads if is_cpu(task.target) else 0
                workload = workload_from_task(task, threads=threads)
                scorer = self.world_model.task(workload, initial_text(task.compute_dag))
            except Exception as error:
                self._note("preparing a task", task, error)
            self._tasks[key] = _Task(scorer, self._niches())
            self._hand_over(key, self._observed.of(key))
        return self._tasks[key]

    def _warn_of_target(self, task: Any) -> None:
        """Warn once if a CPU model ranks a GPU's schedules, or an AVX-512 model ranks AVX2's."""
        known = getattr(self.world_model, "about", {}).get("targets", [])
        if not known or not all(map(is_cpu, known)):
            return
        text = str(task.target)
        if not is_cpu(task.target):
            self._warn_once(
                "wmsched: the cost model has learnt from processors alone (%s, ...), and the target is %s: "
                "its ranking says little there. online=True learns from the run; without cost_model= it is "
                "stock TVM's",
                known[0],
                task.target.kind.name,
            )
        elif default_bundle(text) == AVX2_BUNDLE and not any(map(has_avx2, known)):
            self._warn_once(
                "wmsched: the cost model has learnt from AVX-512 alone (%s, ...), and the target is %s: "
                'cost_model="%s" has learnt from AVX2 too',
                known[0],
                text,
                AVX2_BUNDLE,
            )

    def _warn_once(self, text: str, *values: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning(text, *values)

    def _niches(self) -> Niches:
        keep = self.keep_per_family if self.keep_per_family is not None else max(1, self.round_size // 8)
        return Niches(strength=self.diversity, keep=keep)

    def _observe(self, measured: History) -> None:
        for key, pairs in measured.items():
            new = self._observed.add(key, pairs)
            if key in self._tasks:  # other tasks get theirs in `_task`
                self._hand_over(key, new)

    def _hand_over(self, key: Key, pairs: list[Pair]) -> None:
        kept = self._tasks[key]
        if not pairs or kept.scorer is None or not self.online:
            return
        try:
            self._learn(kept.scorer, pairs)
            kept.scores.clear()
            kept.fitted = None  # learning changes the scale of the scores
        except Exception as error:
            self._note("learning from measurements", None, error)

    def _learn(self, scorer: Any, pairs: Sequence[Pair]) -> None:
        """Pass measurements to a scorer; log and skip the schedules that it cannot read."""
        try:
            scorer.observe([steps for steps, _ in pairs], np.array([seconds for _, seconds in pairs]))
        except Exception as error:
            followed = [pair for pair in pairs if _has_rows(scorer, pair[0])]
            if len(followed) in (0, len(pairs)):  # no single candidate is the cause
                raise
            self._note("learning from measurements", None, error)
            self._learn(scorer, followed)

    def _note(self, doing: str, task: Any, error: Exception) -> None:
        """Count a problem; log the first of its kind with its reason."""
        kind = f"{doing}: {type(error).__name__}"
        self.problems[kind] = self.problems.get(kind, 0) + 1
        if self.problems[kind] == 1:
            what = f" of task {task.desc or task.workload_key}" if task is not None else ""
            logger.warning(
                "wmsched: %s%s failed (%s: %s); candidates without a score rank last, or all alike where "
                "none has one; further failures like this are counted in `problems` without a message",
                doing,
                what,
                type(error).__name__,
                str(error)[:500],
            )


def _has_rows(scorer: Any, steps: Steps) -> bool:
    try:
        scorer.rows([steps])
    except Exception:  # unreadable steps may raise anything
        return False
    return True


def _dump(entry: Any, result: Any) -> str:
    """Return a log line as a plain str; TVM's subclass is refused by orjson and holds C++ memory."""
    return str(auto_scheduler.measure_record.dump_record_to_string(entry, result))
