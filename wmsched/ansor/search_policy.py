"""AutoScheduler's search policy with the generations in the model instead of in TVM.

TVM's sketch policy replays, bounds and prints every program of every generation, a millisecond each (ten for
a Winograd convolution); the world model needs the steps alone. So TVM draws the first programs, as for its
own search, and builds and measures the chosen ones; what lies between is `wmsched.search.evolution`.
"""

from __future__ import annotations

import logging
import math
import random
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from tvm import auto_scheduler
from tvm.auto_scheduler import _ffi_api as ansor_ffi
from tvm.auto_scheduler.measure import MeasureInput

from wmsched.ansor.callbacks import Call, measurement_of
from wmsched.ansor.cost_model import WorldModelCostModel
from wmsched.base.cores import usable_cores
from wmsched.base.errors import WmschedError
from wmsched.search.canonical import without_idle
from wmsched.search.evolution import Evolution, key_of
from wmsched.search.failure_budget import MAX_FAILED, Failures
from wmsched.search.mutations import Mutations, Steps
from wmsched.search.register_tiles import TileQuota

logger = logging.getLogger("wmsched")

OTHER = 1 << 20  # apart from a task's seed: what is drawn later is not what was drawn first
REFUSED = 8  # times as many schedules as are asked for may be refused by TVM before it is enough
TWINS = 100  # of an earlier run's best schedules, whose programs are known by other steps too
FRESH = 0.25  # of a later round's programs are drawn anew; drawing them all takes as long as all else here
POPULATION, KEPT = "evolutionary_search_population", "sample_init_use_measured_ratio"
INNERMOST, STAY = "max_innermost_split_factor", "disable_change_compute_location"


def evolution_of(params: Mapping[str, Any]) -> Evolution:
    """What AutoScheduler's parameters of a search say of it."""
    return Evolution(
        population=int(params[POPULATION]),
        generations=int(params["evolutionary_search_num_iters"]),
        mutated=float(params["evolutionary_search_mutation_prob"]),
    )


class SearchPolicy(auto_scheduler.SketchPolicy):
    """Searches one task; TVM's policy, of which it is one, draws the first programs.

    Parameters
    ----------
    task : tvm.auto_scheduler.SearchTask
        For a processor.
    model : WorldModelCostModel
    builder, runner : ProgramBuilder, ProgramRunner
    callbacks : sequence of callable
        `callbacks.calls`.
    seed : int, optional
        1 or more.
    verbose : int
    measured : sequence of (steps, seconds)
        Of an earlier run; NaN where it failed.
    params : mapping, optional
        AutoScheduler's `search_policy_params`, by its names; its defaults for the rest. ``eps_greedy`` means
        nothing: no schedule is measured for being a random one.
    failures : Failures, optional
        Shared with the searches of a run's other tasks.
    init_search_callbacks : list, optional
        TVM's, for where it searches by itself.
    """

    def __init__(
        self,
        task: Any,
        model: WorldModelCostModel,
        builder: Any,
        runner: Any,
        callbacks: Sequence[Call] = (),
        *,
        seed: int | None = None,
        verbose: int = 1,
        measured: Sequence[tuple[Steps, float]] = (),
        params: Mapping[str, Any] | None = None,
        failures: Failures | None = None,
        init_search_callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.params = {**auto_scheduler.SketchPolicy.DEFAULT_PARAMS, **(params or {})}
        super().__init__(task, auto_scheduler.RandomModel(), params=dict(self.params), seed=seed, verbose=0)
        self.task, self.model = task, model
        self.builder, self.runner, self.callbacks = builder, runner, list(callbacks)
        self.telling = verbose
        self.evolution = evolution_of(self.params)
        self.failures = failures or Failures()
        self.init_search_callbacks = init_search_callbacks
        self.rng = random.Random(seed)
        self._seed = seed
        self._seen = 0
        self._drawn = b""  # programs that TVM has drawn, compressed: a run may have a hundred tasks
        self._few: Any = None
        self._stock: Any = None
        self._warned = False
        self._measured: dict[bytes, tuple[Steps, float]] = {}
        for steps, seconds in measured:
            self._take(without_idle(steps), seconds)
        self._earlier = [key for _, key in self._fastest()[:TWINS]]
        self.failures.ran = self.failures.ran or bool(self._fastest())
        self._programs: set[str] = set()  # as TVM prints them, of what was chosen
        self._head = b""  # of a log's "i", with the task in it

    def continue_search_one_round(self, num_measure: int, measurer: Any) -> tuple[list[Any], list[Any]]:
        """Search, build and measure.

        Parameters
        ----------
        num_measure : int
        measurer : ProgramMeasurer
            Not used: it measures for TVM's own policies.

        Returns
        -------
        inputs, results : list of MeasureInput, list of MeasureResult
            Empty where nothing is left to measure.

        Raises
        ------
        TooManyFailed
            So many, of all tasks and without one that ran, that it is no schedule's fault.
        """
        began = time.monotonic()
        if len(self._measured) > MAX_FAILED and not self._fastest():
            logger.warning(
                "wmsched: %s is left: all %d of its candidates failed", self._named(), len(self._measured)
            )
            return [], []
        try:
            chosen = self.choose(num_measure)
        except Exception as error:  # of ours; TVM's search asks for less
            inputs, results = self._by_tvm(error).continue_search_one_round(num_measure, measurer)
            known = bool(self._fastest())
            for entry, result in zip(inputs, results):
                self._take(self._steps(entry.state), measurement_of(result).seconds)
            self.failures.add(results, known=known)
            return inputs, results
        self._say(f"{len(chosen)} of {self._seen} schedules are measured, chosen in", began)
        inputs, results = [given for _, _, given in chosen], list[Any]()
        known = bool(self._fastest())
        # As TVM's measurer does, so that callbacks hear of a few at a time; how many a fleet times at once is
        # not known.
        here = isinstance(self.runner, auto_scheduler.LocalRunner)
        batch = 2 * usable_cores() if here else max(1, len(inputs))
        for place in range(0, len(inputs), batch):
            part = inputs[place : place + batch]
            found = list(self.runner.run(part, self.builder.build(part, self.telling), self.telling))
            for call in self.callbacks:
                call(self, part, found)
            self.failures.add(found, known=known)
            results += found
        self.model.update(inputs, results)
        for (_, steps, _), result in zip(chosen, results, strict=True):
            self._take(steps, measurement_of(result).seconds)
        if results and not (fastest := self._fastest()):
            self._say_why(results[-1])
        elif results:
            self._say(f"the best takes {1e3 * fastest[0][0]:.4g} ms; round:", began)
        return inputs, results

    def _take(self, steps: Steps, seconds: float) -> None:
        """Remember a measurement; of a schedule that was measured more than once the best."""
        key = key_of(steps)
        before = self._measured.get(key)
        if before is None or not before[1] <= seconds:
            kept = before if before is not None and math.isnan(seconds) else (steps, seconds)
            self._measured[key] = kept

    def choose(self, count: int) -> list[tuple[bytes, Steps, Any]]:
        """Key, steps and input of what to measure next, the best first: up to `count` that TVM can replay.

        Of the steps that make one program, such as the same loop in the places around loops of one iteration,
        only the first is among them, and of one register tile no more than its share (`register_tiles`).
        """
        chosen: list[tuple[bytes, Steps, Any]] = []
        found = self.evolve()
        while self._earlier:
            given = self._input(self._measured[self._earlier.pop()][0])
            if given is not None:
                self._programs.add(str(given.state))
        self._seen, refused, known = len(found), 0, 0
        shares = TileQuota(self._measured.values(), count)
        for key, steps in shares.order(found) if self.model.diversity else found:
            if key in self._measured:
                known += 1
                continue
            given = self._input(steps)
            if given is None:
                refused += 1
            elif (program := str(given.state)) in self._programs:
                known += 1
            else:
                self._programs.add(program)
                shares.take(steps)
                chosen.append((key, steps, given))
            if len(chosen) == count or refused > REFUSED * count:
                break
        if not chosen and (refused > REFUSED * count or (refused and not known)):
            raise WmschedError(f"TVM refuses the best {refused} of {len(found)} schedules")
        return chosen

    def evolve(self) -> list[tuple[bytes, Steps]]:
        """The schedules of a round with their keys, the best first.

        They come from the fastest that were measured and from programs that TVM draws.
        """
        size = self.evolution.population
        best = [self._measured[key][0] for _, key in self._fastest()[: int(self.params[KEPT] * size)]]
        drawn = self._draw(size)
        start = best + drawn[: size - len(best)]
        if not start:
            return []
        innermost, stay = int(self.params[INNERMOST]), bool(self.params[STAY])
        mutate = Mutations(self.rng, innermost=innermost, places=not stay)
        mutate.learn(drawn)
        return self.evolution(start, self._score, mutate, self.rng)

    def _draw(self, count: int) -> list[Steps]:
        """About so many random programs in random order: TVM's of this round, and of the rounds before."""
        policy: Any = super()
        known: list[Steps] = []
        if self._drawn:
            known = orjson.loads(zlib.decompress(self._drawn))
            if self._few is None:
                seed = None if self._seed is None else self._seed + OTHER
                params = self.params | {POPULATION: max(1, int(FRESH * count))}
                model = auto_scheduler.RandomModel()
                self._few = auto_scheduler.SketchPolicy(self.task, model, params=params, seed=seed, verbose=0)
            policy = self._few
        drawn = [self._steps(state) for state in policy.sample_initial_population()]
        drawn += self.rng.sample(known, min(len(known), max(0, count - len(drawn))))
        self.rng.shuffle(drawn)
        self._drawn = zlib.compress(orjson.dumps(drawn), 1)
        return drawn

    def _by_tvm(self, error: Exception) -> Any:
        """TVM's own search with the same model, from now on if need be."""
        if self._stock is None:
            logger.warning(
                "wmsched: searching in the model failed (%s: %s): TVM searches by itself",
                type(error).__name__,
                str(error)[:500],
            )
            self._stock = auto_scheduler.SketchPolicy(
                self.task,
                self.model,
                params=dict(self.params),
                seed=self._seed,
                verbose=self.telling,
                init_search_callbacks=self.init_search_callbacks,
            )
        return self._stock

    def _say(self, what: str, began: float) -> None:
        if self.telling:
            print(f"{what} {time.monotonic() - began:.1f} s", flush=True)

    def _named(self) -> str:
        return str(self.task.desc or self.task.workload_key)

    def _say_why(self, result: Any) -> None:
        """Once: that nothing has run yet, which may be a compiler's fault and no schedule's."""
        if not self._warned:
            self._warned = True
            logger.warning(
                "wmsched: none of the %d programs measured for %s so far has run; the last failed with: %s",
                len(self._measured),
                self._named(),
                str(result.error_msg).strip()[-500:],
            )

    def _score(self, keys: Sequence[bytes], schedules: Sequence[Steps]) -> Any:
        return self.model.predict_steps(self.task, keys, schedules)

    def _fastest(self) -> list[tuple[float, bytes]]:
        """(seconds, key) of what was measured and ran."""
        ran = ((seconds, key) for key, (_, seconds) in self._measured.items())
        return sorted(one for one in ran if not math.isnan(one[0]))

    def _steps(self, state: Any) -> Steps:
        line = str(ansor_ffi.SerializeMeasureInput(MeasureInput(self.task, state)))
        task, (_, steps) = orjson.loads(line)
        if not self._head:
            self._head = orjson.dumps(task)
        return without_idle(steps)

    def _input(self, steps: Steps) -> Any:
        """What TVM measures; None where it cannot replay the steps."""
        try:
            line = b"[" + self._head + b",[[]," + orjson.dumps(steps) + b"]]"
            state = ansor_ffi.DeserializeMeasureInput(line.decode()).state
            return MeasureInput(self.task, self.task.compute_dag.infer_bound_from_state(state))
        except Exception as error:
            logger.debug("a mutated schedule cannot be replayed: %s", str(error)[-300:])
            return None
