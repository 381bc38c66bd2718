"""The world model as a cost model of TVM's MetaSchedule: candidates in, scores out, nothing raised.

>>> from tvm.s_tir import meta_schedule as ms
>>> from wmsched.backends.meta_schedule import WorldModelCostModel
>>> ms.tune_tir(mod, target, work_dir, 64, cost_model=WorldModelCostModel("path/of/a/bundle"))

It works the same in ``ms.relax_integration.tune_relax`` and ``ms.tune_tasks``. Importing this module imports
apache-tvm, with which AutoScheduler's TVM cannot share a process.
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
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.cost_model.cost_model import _PyCostModel
from tvm.s_tir.meta_schedule.utils import shash2hex

from wmsched.backends.attempts import load_world_model, score_around_failures
from wmsched.backends.diversity import Niches, Signature, signature
from wmsched.backends.meta_intrinsics import import_intrinsics
from wmsched.backends.observations import Key, Observations, Pair, Steps
from wmsched.backends.scoring import FLOOR, NEUTRAL, SelectionMap
from wmsched.backends.tir_workload import program_text, target_text, workload_of
from wmsched.backends.traces import StepsReader
from wmsched.garbage import held_off
from wmsched.types import MAX_SECONDS

__all__ = ["WorldModelCostModel"]

logger = logging.getLogger("wmsched")

OBSERVATIONS = "observations.json"


class _Task:
    """What the cost model keeps about one tuning task."""

    def __init__(self, key: Key, scorer: Any, niches: Niches) -> None:
        self.key = key
        self.niches = niches
        self.families: dict[bytes, Signature] = {}
        self.scorer = scorer  # None: it could not be made, and every candidate is scored neutral
        self.scores: dict[bytes, float] = {}  # raw, by the candidate's steps, of this round
        self.fitted: SelectionMap | None = None


class _Handle(_PyCostModel):
    """TVM's own, but for an empty batch: its buffer is a null pointer, which TVM's wrapper fails on."""

    def __init__(
        self,
        f_load: Callable[..., None],
        f_save: Callable[..., None],
        f_update: Callable[..., None],
        predict: Callable[[Any, Any], NDArray[np.float64]],
    ) -> None:
        def fill(context: Any, candidates: Any, buffer: Any) -> None:
            scores = predict(context, candidates)
            if scores.size:
                pointer = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_double))
                np.ctypeslib.as_array(pointer, shape=scores.shape)[:] = scores

        self.__init_handle_by_constructor__(_ffi_api.CostModelPyCostModel, f_load, f_save, f_update, fill)


class _Base(PyCostModel):
    _tvm_metadata = {"cls": _Handle, "methods": ["load", "save", "update", "predict"]}  # noqa: RUF012


@derived_object
class WorldModelCostModel(_Base):
    """MetaSchedule's cost-model contract over a `WorldModel`.

    Nothing here raises into the search: what goes wrong is logged once with its reason and counted in
    `problems`. Candidates the model fails on rank last; where it has nothing to say at all, all get the same
    score and the search is random.

    Parameters
    ----------
    world_model : WorldModel, str or Path
        The model, or the name or folder of a bundle. One trained on AutoScheduler's logs works too, by the
        columns that both schedulers share; one trained on traces knows more.
    online : bool
        Also learn from this run's measurements. Off, the model stays as it was trained.
    diversity : float
        How much candidates of one family discount each other (`diversity.Niches`); 0 leaves the order to
        the model alone.
    round_size : int
        Candidates measured a round (`num_trials_per_iter`); an eighth of it is the number of a family that
        keep their full score.
    """

    def __init__(
        self, world_model: Any, *, online: bool = False, diversity: float = 1.0, round_size: int = 64
    ) -> None:
        super().__init__()
        Niches(strength=diversity, keep=1)  # made only to refuse a bad value now and not in the first round
        self.diversity = diversity
        self.round_size = round_size
        self.world_model = load_world_model(world_model, online=online)
        import_intrinsics()  # the first TuneContext of a process would, and take a minute for it
        self.online = online
        self.problems: dict[str, int] = {}
        self._tasks: dict[tuple[str, str], _Task] = {}
        self._observed = Observations()
        self._read = StepsReader()

    def predict(self, context: Any, candidates: Sequence[Any]) -> NDArray[np.float64]:
        """Scores float64 [len(candidates)] in (0, 1], higher is better; never raises.

        Parameters
        ----------
        context : tvm.s_tir.meta_schedule.TuneContext
        candidates : sequence of MeasureCandidate
        """
        count = len(candidates)
        if count == 0:
            return np.zeros(0, dtype=np.float64)
        try:
            with held_off():
                return self._predict(context, candidates)
        except Exception as error:
            self._note("scoring a batch", context, error)
            return np.full(count, NEUTRAL, dtype=np.float64)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """End a round: forget it and, if online, learn from what was measured; never raises.

        Parameters
        ----------
        context : tvm.s_tir.meta_schedule.TuneContext
        candidates : sequence of MeasureCandidate
        results : sequence of RunnerResult
        """
        try:
            for kept in self._tasks.values():
                kept.scores.clear()
                kept.families.clear()
                kept.niches = self._niches()
            if not self.online or not len(candidates):
                return
            kept = self._task(context)
            steps = self._steps(context, candidates)
            pairs: list[Pair] = [
                (found, _seconds(result)) for found, result in zip(steps, results) if found is not None
            ]
            self._observed.add(kept.key, pairs)
            self._hand_over(kept, pairs)
        except Exception as error:
            self._note("learning from measurements", context, error)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model as a bundle folder, with what it has observed online beside it."""
        folder = Path(str(path))
        self.world_model.save_pretrained(folder)
        self._observed.save(folder / OBSERVATIONS)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Become the model saved by `save`, or any bundle by its folder or name."""
        self.world_model = load_world_model(str(path), online=self.online)
        self._tasks.clear()
        self._observed = Observations.load(Path(str(path)) / OBSERVATIONS)

    # -- one batch

    def _predict(self, context: Any, candidates: Sequence[Any]) -> NDArray[np.float64]:
        kept = self._task(context)
        steps = self._steps(context, candidates)
        if kept.scorer is None or all(found is None for found in steps):
            return np.full(len(candidates), NEUTRAL, dtype=np.float64)
        keys = [None if found is None else orjson.dumps(found) for found in steps]
        fresh: dict[bytes, Steps] = {}
        for key, found in zip(keys, steps):
            if key is not None and found is not None and key not in kept.scores:
                fresh.setdefault(key, found)
        if fresh:

            def failed(error: Exception, last: bool) -> None:
                self._note("scoring a candidate", context, error)

            found_scores = score_around_failures(kept.scorer.score, list(fresh.values()), failed)
            kept.scores.update(zip(fresh, found_scores))
            if self.diversity:
                kept.families.update(zip(fresh, map(signature, fresh.values())))
        raw = np.array([np.nan if key is None else kept.scores[key] for key in keys])
        if not np.isfinite(raw).any():
            return np.full(len(candidates), NEUTRAL, dtype=np.float64)
        if kept.fitted is None:
            kept.fitted = SelectionMap.fit(raw)
        scores = kept.fitted(raw).astype(np.float64)
        known = [place for place, key in enumerate(keys) if key is not None]
        if self.diversity and known:
            families = [kept.families[keys[place]] for place in known]  # type: ignore[index]
            scores[known] = kept.niches.share([keys[place] for place in known], families, scores[known])
        # The search multiplies and sums these: nothing below the floor, nothing that is no number.
        return np.clip(np.nan_to_num(scores, nan=FLOOR, posinf=1.0, neginf=FLOOR), FLOOR, 1.0)

    def _steps(self, context: Any, candidates: Sequence[Any]) -> list[Steps | None]:
        """Each candidate's steps; None where its trace cannot be read."""
        found: list[Steps | None] = []
        for candidate in candidates:
            try:
                found.append(self._read(candidate.sch))
            except Exception as error:
                self._note("reading a trace", context, error)
                found.append(None)
        return found

    # -- tasks and what is learnt about them

    def _task(self, context: Any) -> _Task:
        name = (shash2hex(context.mod), target_text(context.target) if context.target is not None else "")
        kept = self._tasks.get(name)
        if kept is None:
            key, scorer = name, None
            try:
                workload = workload_of(context.mod, name[1])
                key = (workload.key, name[1])
                scorer = self.world_model.task(workload, program_text(context.mod))
            except Exception as error:
                self._note("preparing a task", context, error)
            kept = self._tasks[name] = _Task(key, scorer, self._niches())
            self._hand_over(kept, self._observed.of(key))
        return kept

    def _niches(self) -> Niches:
        return Niches(strength=self.diversity, keep=max(1, self.round_size // 8))

    def _hand_over(self, kept: _Task, pairs: list[Pair]) -> None:
        if not pairs or kept.scorer is None or not self.online:
            return
        kept.scorer.observe([steps for steps, _ in pairs], np.array([seconds for _, seconds in pairs]))
        kept.scores.clear()
        kept.families.clear()
        kept.fitted = None  # what has learnt has another scale

    def _note(self, doing: str, context: Any, error: Exception) -> None:
        """Count a problem; log the first of its kind with its reason."""
        kind = f"{doing}: {type(error).__name__}"
        self.problems[kind] = self.problems.get(kind, 0) + 1
        if self.problems[kind] == 1:
            logger.warning(
                "wmsched: %s of task %s failed (%s: %s); candidates without a score rank last, or all alike "
                "where none has one; further failures like this are counted in `problems` without a message",
                doing,
                getattr(context, "task_name", None) or "main",
                type(error).__name__,
                str(error)[-500:],
            )


def _seconds(result: Any) -> float:
    """Mean run time of a RunnerResult; NaN where it failed or what it says is no time."""
    times = [float(x) for x in result.run_secs or ()]
    fine = bool(times) and all(0 < t < MAX_SECONDS for t in times)  # NaN compares as false
    return sum(times) / len(times) if fine else float("nan")
