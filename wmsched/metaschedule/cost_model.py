"""World model as a MetaSchedule cost model: candidates in, scores out; it never raises into a search.

>>> from tvm.s_tir import meta_schedule as ms
>>> from wmsched.metaschedule.cost_model import WorldModelCostModel
>>> ms.tune_tir(mod, target, work_dir, 64, cost_model=WorldModelCostModel("path/of/a/bundle"))

It also works in ``ms.relax_integration.tune_relax`` and ``ms.tune_tasks``. Importing this module imports
apache-tvm, which cannot share a process with AutoScheduler's TVM.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.cost_model.cost_model import _PyCostModel
from tvm.s_tir.meta_schedule.utils import shash2hex

from wmsched.features.hardware import run_threads
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.native.library import library
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.scores import Note, TaskScores
from wmsched.metaschedule.trace_reader import StepsReader
from wmsched.metaschedule.workload import program_text, workload_of
from wmsched.schedules.database import mean
from wmsched.search.diversity import Niches
from wmsched.search.guarded_scoring import load_world_model
from wmsched.search.history import History, Key, Pair
from wmsched.search.selection import NEUTRAL
from wmsched.toolchain.targets import target_text

__all__ = ["WorldModelCostModel"]

logger = logging.getLogger("wmsched")

OBSERVATIONS = "observations.json"


class _Handle(_PyCostModel):
    """TVM's handle with support for an empty batch.

    Works around apache-tvm 0.27, which fails on an empty batch's null buffer; remove when it does not.
    """

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
    """MetaSchedule cost model that scores candidates with a `WorldModel`.

    >>> model = WorldModelCostModel("x86-meta", online=True)
    >>> database = ms.tune_tir(mod, target, work_dir, 64, cost_model=model)

    It never raises into the search. Each kind of failure is logged once with its reason and counted in
    `problems`. Candidates that the model fails on rank last. If it fails on all, all scores are equal and
    the search is random.

    Parameters
    ----------
    world_model : WorldModel, str or Path
        The model, or the name or folder of a bundle. A model trained on AutoScheduler's logs works by the
        columns that both schedulers share; one trained on traces ranks better.
    online : bool
        Whether the model also learns from this run's measurements.
    diversity : float
        How much candidates of one family discount each other (`diversity.Niches`); 0: not at all.
    round_size : int
        Candidates measured a round (`num_trials_per_iter`). An eighth of it may be of one family without
        discount.
    native : bool
        Whether a C++ library reads the candidates whose instructions it knows. The first model compiles it
        in some seconds; later runs reuse it. Python reads the other candidates several times slower, with
        the same scores (the same order, if it reads part of the first batch).
    """

    def __init__(
        self,
        world_model: Any,
        *,
        online: bool = False,
        diversity: float = 1.0,
        round_size: int = 64,
        native: bool = True,
    ) -> None:
        super().__init__()
        Niches(strength=diversity, keep=1)  # refuses a bad value here, not in round 1
        self.diversity = diversity
        self.round_size = round_size
        self.world_model = load_world_model(world_model, online=online)
        import_intrinsics()  # else the first TuneContext does, in up to a minute
        self.online = online
        self.problems: dict[str, int] = {}
        self._tasks: dict[tuple[str, str], tuple[Key, TaskScores]] = {}
        self._observed = History()
        self._read = StepsReader()
        self._library = library() if native else None
        # TVM and torch leave 250,000 uncollected objects: 0.1 s here instead of in the first scored batch.
        gc.collect()

    def predict(self, context: Any, candidates: Sequence[Any]) -> NDArray[np.float64]:
        """Return scores float64 [len(candidates)] in (0, 1], higher is better; never raises.

        Parameters
        ----------
        context : tvm.s_tir.meta_schedule.TuneContext
        candidates : sequence of MeasureCandidate
        """
        count = len(candidates)
        if count == 0:
            return np.zeros(0, dtype=np.float64)
        try:
            return self._task(context)[1].score(candidates, self._noted(context))
        except Exception as error:
            self._note("scoring a batch", context, error)
            return np.full(count, NEUTRAL, dtype=np.float64)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """End a round: clear its scores and, if online, learn from its measurements; never raises.

        Parameters
        ----------
        context : tvm.s_tir.meta_schedule.TuneContext
        candidates : sequence of MeasureCandidate
        results : sequence of RunnerResult
        """
        try:
            for _, scores in self._tasks.values():
                scores.end_round()
            if not self.online or not len(candidates):
                return
            key, scores = self._task(context)
            note = self._noted(context)
            found = [scores.steps(candidate, note) for candidate in candidates]
            pairs: list[Pair] = [
                (steps, mean(result.run_secs or ()))
                for steps, result in zip(found, results)
                if steps is not None
            ]
            self._observed.add(key, pairs)
            self._hand_over(scores, pairs)
        except Exception as error:
            self._note("learning from measurements", context, error)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model as a bundle folder, with its online observations in `OBSERVATIONS`."""
        folder = Path(str(path))
        self.world_model.save_pretrained(folder)
        self._observed.save(folder / OBSERVATIONS)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load the model that `save` wrote, or any bundle by its folder or name."""
        self.world_model = load_world_model(str(path), online=self.online)
        self._tasks.clear()
        self._observed = History.load(Path(str(path)) / OBSERVATIONS)

    def scores(self, context: Any) -> TaskScores:
        """Return a task's `TaskScores`, for a search without a `MeasureCandidate` for each candidate."""
        return self._task(context)[1]

    # -- tasks and what is learnt about them

    def _task(self, context: Any) -> tuple[Key, TaskScores]:
        name = (shash2hex(context.mod), target_text(context.target) if context.target is not None else "")
        kept = self._tasks.get(name)
        if kept is None:
            key, scorer, reader = name, None, None
            try:
                workload = workload_of(context.mod, name[1])
                key = (workload.key, name[1])
                scorer = self.world_model.task(workload, program_text(context.mod))
                if self._library is not None and getattr(scorer, "takes_columns", False):
                    seen = self.world_model.seen(workload)
                    reader = TraceReader(self._library, seen, threads=run_threads(workload))
            except Exception as error:
                self._note("preparing a task", context, error)
            scores = TaskScores(
                scorer,
                reader=reader,
                read_steps=self._read,
                diversity=self.diversity,
                keep=max(1, self.round_size // 8),
            )
            kept = self._tasks[name] = (key, scores)
            self._hand_over(scores, self._observed.of(key))
        return kept

    def _hand_over(self, scores: TaskScores, pairs: list[Pair]) -> None:
        if pairs and scores.scorer is not None and self.online:
            scores.observe(pairs)

    def _noted(self, context: Any) -> Note:
        return lambda doing, error: self._note(doing, context, error)

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
