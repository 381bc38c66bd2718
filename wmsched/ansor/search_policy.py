"""AutoScheduler search policy whose generations run in the model instead of in TVM.

TVM's sketch policy replays, bounds and prints every program of every generation: 1 ms each, 10 ms for a
Winograd convolution. The world model needs the transform steps only. TVM therefore samples the first
programs and builds and measures the chosen ones; `wmsched.search.evolution` does the rest.
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
from wmsched.ansor.corrections import Ledger
from wmsched.ansor.cost_model import WorldModelCostModel
from wmsched.base.cores import usable_cores
from wmsched.base.errors import WmschedError
from wmsched.search import failure_budget
from wmsched.search.canonical import without_idle
from wmsched.search.evolution import Evolution, key_of
from wmsched.search.failure_budget import Failures
from wmsched.search.mutations import Mutations, Steps
from wmsched.search.register_tiles import TileQuota
from wmsched.search.sharing import Progress

logger = logging.getLogger("wmsched")

LATER_ROUNDS_SEED_OFFSET = 1 << 20  # keeps later rounds from resampling the first round
MAX_REFUSED_PER_CANDIDATE = 8  # a round fails after this many TVM refusals per requested candidate
MAX_REPLAYED_RECORDS = 100  # best schedules of an earlier run replayed to recognise their programs
REDRAWN_SHARE = 0.25  # of a later round's programs; sampling all would double the policy's time
POPULATION_PARAM, MEASURED_RATIO_PARAM = "evolutionary_search_population", "sample_init_use_measured_ratio"
INNERMOST_PARAM, FIXED_LOCATION_PARAM = "max_innermost_split_factor", "disable_change_compute_location"


def evolution_of(params: Mapping[str, Any]) -> Evolution:
    """Return the `Evolution` that AutoScheduler's `search_policy_params` describe."""
    return Evolution(
        population=int(params[POPULATION_PARAM]),
        generations=int(params["evolutionary_search_num_iters"]),
        mutated=float(params["evolutionary_search_mutation_prob"]),
    )


class SearchPolicy(auto_scheduler.SketchPolicy):
    """Search policy of one task; its base class, TVM's sketch policy, samples the first programs.

    Parameters
    ----------
    task : tvm.auto_scheduler.SearchTask
        A task for a processor.
    model : WorldModelCostModel
    builder, runner : ProgramBuilder, ProgramRunner
    callbacks : sequence of callable
        As `callbacks.calls` returns them.
    seed : int, optional
        1 or more.
    verbose : int
    measured : sequence of (steps, seconds)
        Records of an earlier run; NaN for a failure.
    params : mapping, optional
        AutoScheduler's `search_policy_params`; its defaults for the rest. ``eps_greedy`` has no effect: no
        random schedules are measured.
    failures : Failures, optional
        Shared with the policies of the run's other tasks.
    init_search_callbacks : list, optional
        TVM's callbacks, for its own search as a fallback.
    ledger : Ledger, optional
        Of the run's measured programs, whose times are corrected when references are revised.
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
        ledger: Ledger | None = None,
    ) -> None:
        self.params = {**auto_scheduler.SketchPolicy.DEFAULT_PARAMS, **(params or {})}
        super().__init__(task, auto_scheduler.RandomModel(), params=dict(self.params), seed=seed, verbose=0)
        self.task, self.model = task, model
        self.builder, self.runner, self.callbacks = builder, runner, list(callbacks)
        self.telling = verbose
        self.evolution = evolution_of(self.params)
        self.failures = failures or Failures()
        self.init_search_callbacks = init_search_callbacks
        self.ledger, self.progress = ledger, Progress()
        self.rng = random.Random(seed)
        self._seed = seed
        self._seen = 0
        self._drawn = b""  # sampled programs, compressed: a run may have a hundred tasks
        self._redraw_policy: Any = None
        self._stock: Any = None
        self._warned = False
        self._measured: dict[bytes, tuple[Steps, float]] = {}
        for steps, seconds in measured:
            self._take(without_idle(steps), seconds)
            self.progress.take(seconds)
        if measured:
            self.progress.end_round()
        self._earlier = [key for _, key in self._fastest()[:MAX_REPLAYED_RECORDS]]
        self.failures.ran = self.failures.ran or bool(self._fastest())
        self._programs: set[str] = set()  # texts of the chosen programs
        self._head = b""  # the task's part of a log's "i"

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
            More than `failure_budget.MAX_FAILED` candidates failed, of all tasks, and none ran.
        """
        began = time.monotonic()
        if len(self._measured) > failure_budget.MAX_FAILED and not self._fastest():
            logger.warning(
                "wmsched: %s is left: all %d of its candidates failed", self._named(), len(self._measured)
            )
            return [], []
        try:
            chosen = self.choose(num_measure)
        except Exception as error:  # our error; TVM's own search needs less
            inputs, results = self._tvm_policy(error).continue_search_one_round(num_measure, measurer)
            known = bool(self._fastest())
            for entry, result in zip(inputs, results):
                self._take(self._steps(entry.state), measurement_of(result).seconds)
                self.progress.take(measurement_of(result).seconds)
            self.progress.end_round()
            self.failures.add(results, known=known)
            return inputs, results
        self._say(f"{len(chosen)} of {self._seen} schedules are measured, chosen in", began)
        inputs, results, programs = [given for _, _, given in chosen], list[Any](), list[str]()
        known = bool(self._fastest())
        # Small batches, as TVM's measurer makes, keep callbacks current; an RPC fleet's size is unknown.
        here = isinstance(self.runner, auto_scheduler.LocalRunner)
        batch = 2 * usable_cores() if here else max(1, len(inputs))
        for place in range(0, len(inputs), batch):
            part = inputs[place : place + batch]
            built = list(self.builder.build(part, self.telling))
            programs += [str(one.filename) for one in built]
            found = list(self.runner.run(part, built, self.telling))
            for call in self.callbacks:
                call(self, part, found)
            self.failures.add(found, known=known)
            results += found
        self.model.update(inputs, results)
        for (_, steps, _), result, program in zip(chosen, results, programs, strict=True):
            self._take(steps, measurement_of(result).seconds)
            self.progress.take(measurement_of(result).seconds)
            if self.ledger is not None and not int(result.error_no):
                self.ledger.add(program, self, key_of(steps), len(self.progress.times) - 1)
        self.progress.end_round()
        if results and not (fastest := self._fastest()):
            self._warn_none_ran(results[-1])
        elif results:
            self._say(f"the best takes {1e3 * fastest[0][0]:.4g} ms; round:", began)
        return inputs, results

    def _take(self, steps: Steps, seconds: float) -> None:
        """Record a measurement; keep a schedule's best time."""
        key = key_of(steps)
        before = self._measured.get(key)
        if before is None or not before[1] <= seconds:
            kept = before if before is not None and math.isnan(seconds) else (steps, seconds)
            self._measured[key] = kept

    def correct(self, keys: Mapping[bytes, float], trials: Mapping[int, float]) -> None:
        """Multiply the times of measured schedules, by their keys, and of trials, by their numbers."""
        for key, factor in keys.items():
            steps, seconds = self._measured[key]
            self._measured[key] = steps, seconds * factor
        self.progress.correct(trials)

    def choose(self, count: int) -> list[tuple[bytes, Steps, Any]]:
        """Return (key, steps, input) of up to `count` candidates to measure, the best first.

        TVM can replay each of them. Step lists that lower to the same program (say, differing in unit loops)
        are kept once, and no register tile gets more than its quota of the round (`register_tiles`).

        Raises
        ------
        WmschedError
            TVM refuses all of the best candidates.
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
            if len(chosen) == count or refused > MAX_REFUSED_PER_CANDIDATE * count:
                break
        if not chosen and (refused > MAX_REFUSED_PER_CANDIDATE * count or (refused and not known)):
            raise WmschedError(f"TVM refuses the best {refused} of {len(found)} schedules")
        return chosen

    def evolve(self) -> list[tuple[bytes, Steps]]:
        """Return (key, steps) of a round's schedules, the best first.

        The first generation is the fastest measured schedules and programs that TVM samples.
        """
        size = self.evolution.population
        best = [
            self._measured[key][0]
            for _, key in self._fastest()[: int(self.params[MEASURED_RATIO_PARAM] * size)]
        ]
        drawn = self._draw(size)
        start = best + drawn[: size - len(best)]
        if not start:
            return []
        innermost, stay = int(self.params[INNERMOST_PARAM]), bool(self.params[FIXED_LOCATION_PARAM])
        mutate = Mutations(self.rng, innermost=innermost, places=not stay)
        mutate.learn(drawn)
        return self.evolution(start, self._score, mutate, self.rng)

    def _draw(self, count: int) -> list[Steps]:
        """Return about `count` random programs in random order, of this round and earlier ones."""
        policy: Any = super()
        known: list[Steps] = []
        if self._drawn:
            known = orjson.loads(zlib.decompress(self._drawn))
            if self._redraw_policy is None:
                seed = None if self._seed is None else self._seed + LATER_ROUNDS_SEED_OFFSET
                params = self.params | {POPULATION_PARAM: max(1, int(REDRAWN_SHARE * count))}
                model = auto_scheduler.RandomModel()
                self._redraw_policy = auto_scheduler.SketchPolicy(
                    self.task, model, params=params, seed=seed, verbose=0
                )
            policy = self._redraw_policy
        drawn = [self._steps(state) for state in policy.sample_initial_population()]
        drawn += self.rng.sample(known, min(len(known), max(0, count - len(drawn))))
        self.rng.shuffle(drawn)
        self._drawn = zlib.compress(orjson.dumps(drawn), 1)
        return drawn

    def _tvm_policy(self, error: Exception) -> Any:
        """Return TVM's own search policy with the same model, the fallback after `error`."""
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

    def _warn_none_ran(self, result: Any) -> None:
        """Warn once that no program has run yet; the compiler may be the cause."""
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
        """Return (seconds, key) of the programs that ran, the fastest first."""
        ran = ((seconds, key) for key, (_, seconds) in self._measured.items())
        return sorted(one for one in ran if not math.isnan(one[0]))

    def _steps(self, state: Any) -> Steps:
        line = str(ansor_ffi.SerializeMeasureInput(MeasureInput(self.task, state)))
        task, (_, steps) = orjson.loads(line)
        if not self._head:
            self._head = orjson.dumps(task)
        return without_idle(steps)

    def _input(self, steps: Steps) -> Any:
        """Return the steps as a MeasureInput; None if TVM cannot replay them."""
        try:
            line = b"[" + self._head + b",[[]," + orjson.dumps(steps) + b"]]"
            state = ansor_ffi.DeserializeMeasureInput(line.decode()).state
            return MeasureInput(self.task, self.task.compute_dag.infer_bound_from_state(state))
        except Exception as error:
            logger.debug("a mutated schedule cannot be replayed: %s", str(error)[-300:])
            return None
