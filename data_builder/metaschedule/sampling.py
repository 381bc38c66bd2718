"""Which schedules of a program to measure next: random ones of its space, or a cost model's first choices."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

from wmsched.base.errors import LogError, WmschedError
from wmsched.schedules.database import schedule_key
from wmsched.schedules.traces import Steps
from wmsched.toolchain.resolve import is_cpu

ATTEMPTS = 3  # samples without a new schedule after which a program's space counts as used up
POPULATION, GENERATIONS = 256, 3  # of a guided sample
#: Schedules that are drawn at a time on a GPU: most of a convolution's take more than a block may, and TVM
#: gives a program up after five draws that leave too few.
GPU_POPULATION = 512
DRAWN = 8  # times as many rows of each space as candidates are wanted: the shared memory of most does not fit


class TraceSampler:
    """New schedules of one program.

    Parameters
    ----------
    mod : tvm.IRModule
        Normalized, as `programs.Program.module` gives it.
    target : tvm.target.Target
    measured : set of bytes
        Keys of schedules that are not to be proposed again; the sampler adds to it.
    cost_model : callable () -> CostModel, or None
        Makes the model that guides; None for random schedules only.
    name : str
        Of the task, for TVM's messages.
    """

    def __init__(
        self,
        mod: Any,
        target: Any,
        *,
        measured: set[bytes],
        cost_model: Callable[[], Any] | None = None,
        name: str = "main",
    ) -> None:
        self.mod, self.target, self.name = mod, target, name
        self.measured = measured
        self.cost_model = cost_model

    def next(self, count: int, *, guided: bool, seed: int) -> list[tuple[Any, Steps]]:
        """Up to `count` candidates that are not measured yet, each with its steps, different from each other.

        Parameters
        ----------
        count : int
        guided : bool
            Those that the cost model ranks first, where there is one.
        seed : int
            Of the search; with the same records the same candidates.
        """
        found: list[tuple[Any, Steps]] = []
        taken: set[bytes] = set()
        for attempt in range(ATTEMPTS):
            for candidate in self._sample(count + len(taken), guided=guided, seed=seed + 7919 * attempt):
                steps = _steps(candidate)
                if steps is None:
                    continue
                key = schedule_key(steps)
                if key not in self.measured and key not in taken:
                    taken.add(key)
                    found.append((candidate, steps))
                    if len(found) == count:
                        return found
        return found

    def note(self, steps: Steps) -> None:
        """Remember that a schedule has been measured."""
        self.measured.add(schedule_key(steps))

    def _sample(self, count: int, *, guided: bool, seed: int) -> list[Any]:
        from tvm.s_tir import meta_schedule as ms

        from wmsched.metaschedule.rules.spaces import space_generator

        model = self.cost_model() if guided and self.cost_model is not None else None
        wanted = max(8, 2 * count)
        strategy = self._strategy(model, wanted)
        context = ms.TuneContext(
            self.mod,
            target=self.target,
            space_generator=space_generator(self.target),
            search_strategy=strategy,
            task_name=self.name,
            rand_state=1 + seed % ((1 << 31) - 2),
            num_threads=1,
            logger=logging.getLogger("wmsched.collect"),
        )
        designs = context.generate_design_space()
        if model is None and not is_cpu(self.target):
            drawn = _drawn(context, designs, wanted, seed)
            if drawn is not None:
                return drawn
        # A model chooses in each space of a GPU's: its records are to tell which of the spaces is the best.
        apart = model is not None and not is_cpu(self.target)
        parts = [[design] for design in designs] if apart else [designs]
        share = -(-wanted // max(1, len(parts)))
        found: list[list[Any]] = []
        for spaces in parts:
            context.pre_tuning(
                max_trials=share,
                num_trials_per_iter=share,
                design_spaces=spaces,
                database=ms.database.MemoryDatabase(),
                cost_model=model or ms.cost_model.RandomModel(seed=seed % (1 << 32)),
            )
            try:
                found.append(list(context.generate_measure_candidates() or ()))
            finally:
                context.post_tuning()
        return [one for row in itertools.zip_longest(*found) for one in row if one is not None]

    def _strategy(self, model: Any, wanted: int) -> Any:
        """Where a model guides our search, if it is one of ours; MetaSchedule's else."""
        from tvm.s_tir import meta_schedule as ms

        population = POPULATION if model is not None else wanted
        if not is_cpu(self.target):
            population = max(population, GPU_POPULATION)

        def stock(designs: Any = ()) -> Any:
            return ms.search_strategy.EvolutionarySearch(
                population_size=population,
                init_measured_ratio=0.0,
                init_min_unmeasured=wanted,
                genetic_num_iters=GENERATIONS if model is not None else 0,
                eps_greedy=0.1 if model is not None else 1.0,
            )

        if model is None:
            return stock()
        from wmsched.metaschedule.cost_model import WorldModelCostModel
        from wmsched.metaschedule.search_strategy import drawn_search

        return drawn_search(model, stock=stock) if isinstance(model, WorldModelCostModel) else stock()


def _drawn(context: Any, designs: Any, count: int, seed: int) -> list[Any] | None:
    """Random candidates of a GPU's spaces, of whose tiles TVM builds twenty to find one; None for others."""
    import numpy as np

    from wmsched.metaschedule.design_space import DrawnSpaces
    from wmsched.metaschedule.native.library import library
    from wmsched.metaschedule.native.reader import TraceReader
    from wmsched.metaschedule.workload import workload_of
    from wmsched.toolchain.targets import target_text

    native = library()
    if native is None:
        return None
    reader = TraceReader(native, workload_of(context.mod, target_text(context.target)))
    rng = np.random.default_rng(seed)
    try:
        spaces = DrawnSpaces(context, designs)
        spaces.check(reader, rng)
    except WmschedError:
        return None
    drawn = spaces.random(DRAWN * count, rng)
    rng.shuffle(drawn)
    _, fits = spaces.read(reader, drawn)
    made = (spaces.candidate(one) for one, fine in zip(drawn, fits) if fine)
    return list(itertools.islice((one for one in made if one is not None), count))


def _steps(candidate: Any) -> Steps | None:
    from wmsched.metaschedule.trace_reader import steps_of_schedule

    try:
        return steps_of_schedule(candidate.sch)
    except (LogError, ValueError):
        return None
