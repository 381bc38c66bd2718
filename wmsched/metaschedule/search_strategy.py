"""MetaSchedule search strategy whose generations run in the model instead of in TVM.

TVM's evolutionary search builds every schedule. On a GPU a few percent of random schedules are valid, so the
first 8 measurements of a convolution take half a minute. Decisions alone suffice
(`wmsched.search.decision_space`): C++ simulates the postprocessors (`native.reader.TraceReader.drawn`). TVM
makes the design space and builds the candidates to measure; `wmsched.search.evolution` does the rest.

>>> from tvm.s_tir import meta_schedule as ms
>>> model = WorldModelCostModel("cuda-meta")
>>> ms.tune_tir(mod, target, work_dir, 64, cost_model=model, strategy=drawn_search(model))
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.search_strategy import PySearchStrategy

from wmsched.base.errors import WmschedError
from wmsched.construct.choice import Choice, First
from wmsched.construct.graph import Graph
from wmsched.construct.traversal import Traversal, Walk
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.design_space import Drawn, DrawnSpaces
from wmsched.metaschedule.native.reader import TraceReader
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.metaschedule.workload import workload_of
from wmsched.schedules.database import mean, records_of
from wmsched.search.evolution import Evolution, key_of
from wmsched.search.register_tiles import TileQuota
from wmsched.toolchain.targets import target_text

__all__ = ["drawn_search"]

logger = logging.getLogger("wmsched")

MAX_REFUSED_PER_CANDIDATE = 8  # a round fails after this many TVM refusals per requested candidate
MEASURED_SHARE = 0.2  # of a round's first generation; MetaSchedule's init_measured_ratio
GPU_OVERSAMPLING = 4  # samples per place in the first generation; the shared memory of most does not fit
#: TVM's search in spaces of tensor cores, whose programs take it some tenths of a second each to make.
TENSOR_CORE_SEARCH = {"population_size": 64, "init_min_unmeasured": 32, "genetic_num_iters": 2}
DEFAULT_EVOLUTION = Evolution(population=1024, generations=4)
DEFAULT_CHOICE = First()


def drawn_search(
    model: WorldModelCostModel,
    *,
    evolution: Traversal = DEFAULT_EVOLUTION,
    stock: Any = None,
    choice: Choice = DEFAULT_CHOICE,
    seeds: Callable[[Any], list[Any]] | None = None,
    near: Traversal | None = None,
) -> Any:
    """Return a search strategy for a model; unknown spaces fall back to MetaSchedule's evolutionary search.

    Parameters
    ----------
    model : WorldModelCostModel
        The cost model that MetaSchedule gets too.
    evolution : Evolution or another Traversal
        How schedules are gone through in each round (`wmsched.construct`).
    stock : callable (design spaces) -> SearchStrategy, optional
        The fallback; by default MetaSchedule's evolutionary search.
    choice : Choice
        Which of them are proposed first.
    seeds : callable (mod) -> list of traces as JSON, optional
        Schedules of like programs with other extents (`wmsched.metaschedule.neighbours`): adapted, they are
        in the first generation, and half of the first round may be of them.
    near : Traversal, optional
        In place of `evolution` where there are seeds, which are then ranked with the others, not proposed
        first.
    """
    return _DrawnSearch(model, evolution, stock or _evolutionary, choice, seeds, near)


def _evolutionary(designs: Sequence[Any]) -> Any:
    if any("auto_tensorize" in str(design.trace) for design in designs):
        return ms.search_strategy.EvolutionarySearch(**TENSOR_CORE_SEARCH)
    return ms.search_strategy.EvolutionarySearch()


@derived_object
class _DrawnSearch(PySearchStrategy):
    def __init__(
        self,
        model: WorldModelCostModel,
        evolution: Traversal,
        stock: Any,
        choice: Choice,
        seeds: Any,
        near: Traversal | None,
    ) -> None:
        super().__init__()
        self.seeds, self.near = seeds, near
        self.model, self.evolution, self.make_stock, self.choice = model, evolution, stock, choice
        self.context: Any = None
        self.scores: Any = None
        self.stock: Any = None  # TVM's search, after a fallback
        self.begun: tuple[Any, ...] = ()
        self.left = self.size = 0
        self.spaces: Any = None
        self.graph: Any = None  # made when a walk or a choice asks for it
        self.measured: dict[bytes, tuple[Drawn, float]] = {}
        self.proposed: list[tuple[Any, bytes, Drawn]] = []
        self.known: set[bytes] = set()
        self.model_keys: dict[bytes, bytes | None] = {}  # by keys of rows
        self.settled: dict[bytes, Drawn] = {}  # rows with TVM's compute locations

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.context = context

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: Any, database: Any, cost_model: Any
    ) -> None:
        self.begun = max_trials, num_trials_per_iter, list(design_spaces), database, cost_model
        self.left, self.size, self.stock = max_trials, num_trials_per_iter, None
        self.measured, self.known, self.proposed = {}, set(), []
        seed = int(self.context.rand_state) % (1 << 31)
        self.rng, self.numpy = random.Random(seed), np.random.default_rng(seed)
        try:
            self._prepare(list(design_spaces))
            self._load_history(database)
        except Exception as error:  # TVM's errors have no common base
            self._fall_back_to_tvm(error, logging.DEBUG)

    def post_tuning(self) -> None:
        if self.stock is not None:
            self.stock.post_tuning()
        # TVM's context and this object hold each other, so anything kept here would leak.
        self.spaces, self.graph, self.scores, self.stock, self.begun = None, None, None, None, ()
        self.proposed, self.measured, self.known, self.model_keys, self.settled = [], {}, set(), {}, {}

    def generate_measure_candidates(self) -> Any:
        if self.stock is None:
            try:
                return self._propose(min(self.size, self.left))
            except Exception as error:
                self._fall_back_to_tvm(error, logging.WARNING)
        return self.stock.generate_measure_candidates()

    def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
        if self.stock is not None:
            self.stock.notify_runner_results(measure_candidates, results)
            return
        for candidate, result in zip(measure_candidates, results):
            for own, key, drawn in self.proposed:
                if own.same_as(candidate):
                    self.measured[key] = drawn, mean([float(x) for x in result.run_secs or ()])
                    break

    def clone(self) -> Any:
        return drawn_search(
            self.model,
            evolution=self.evolution,
            stock=self.make_stock,
            choice=self.choice,
            seeds=self.seeds,
            near=self.near,
        )

    # -- the task

    def _prepare(self, designs: Sequence[Any]) -> None:
        """Read the design spaces and check the reader against TVM.

        Raises
        ------
        WmschedError
            They disagree, or there is no C++ reader.
        LogError
            A space has an unknown kind of decision.
        """
        self.scores = self.model.scores(self.context)
        self.spaces, self.graph = DrawnSpaces(self.context, designs), None
        self.spaces.settle(self._reader(), self.numpy)
        self.spaces.check(self._reader(), self.numpy)

    def _reader(self) -> TraceReader:
        reader = self.scores.reader
        if reader is None:
            raise WmschedError("schedules are not read in C++")
        return reader

    def _load_history(self, database: Any) -> None:
        """Load the database's records of this task."""
        if database is None or not database.has_workload(self.context.mod):
            return
        workload = database.commit_workload(self.context.mod)
        for record in records_of(database, workload):
            drawn = self.spaces.of(trace_json(record.trace))
            if drawn is not None:
                key = key_of(drawn)
                self.known.add(key)
                seconds = mean([float(x) for x in record.run_secs or ()])
                before = self.measured.get(key, (drawn, math.nan))[1]
                self.measured[key] = drawn, seconds if not seconds >= before and seconds > 0 else before

    # -- a round

    def _propose(self, count: int) -> Any:
        if count <= 0:
            return None
        first = [] if self.measured or self.seeds is None else self._seeded()
        found = [(row, self.settled[row]) for row, _ in self._evolve(first)]
        if self.choice != DEFAULT_CHOICE:
            found = self.choice(found, self._graph())
        chosen: list[tuple[Any, bytes, Drawn]] = []
        refused = 0
        ahead = first[: max(1, count // 2)] if self.near is None else []
        shares = TileQuota(self.measured.values(), count, tile_of=self.spaces.register_tile)
        ordered = shares.order(found) if self.model.diversity and self.spaces.cpu else found
        for _, drawn in itertools.chain(((b"", one) for one in ahead), ordered):
            key = key_of(drawn)
            if key in self.known:
                continue
            self.known.add(key)
            candidate = self.spaces.candidate(drawn)
            if candidate is None:
                refused += 1
            else:
                shares.take(drawn)
                chosen.append((candidate, key, drawn))
            if len(chosen) == count or refused > MAX_REFUSED_PER_CANDIDATE * count:
                break
        if refused and not chosen:
            raise WmschedError(f"TVM refuses the best {refused} of {len(found)} schedules")
        if chosen:  # TVM has made them: check the reader again
            candidates = [candidate for candidate, _, _ in chosen]
            self.spaces.compare(self._reader(), candidates, [drawn for _, _, drawn in chosen])
        self.proposed = chosen
        self.left -= len(chosen)
        return [candidate for candidate, _, _ in chosen] or None

    def _seeded(self) -> list[Drawn]:
        """Return like programs' schedules, adapted to this one, as far as they are schedules of it."""
        rows = [self.spaces.adapted(trace) for trace in self.seeds(self.context.mod)]
        drawn = [one for one in rows if one is not None]
        keys = [key_of(one) for one in drawn]
        read = self._read(keys, drawn)
        return [self.settled[key] for key, known in zip(keys, read) if known is not None]

    def _evolve(self, first: Sequence[Drawn] = ()) -> list[tuple[bytes, Drawn]]:
        traversal = self.near if first and self.near is not None else self.evolution
        size = traversal.population
        ran = sorted((seconds, key) for key, (_, seconds) in self.measured.items() if seconds > 0)
        best = [*first, *(self.measured[key][0] for _, key in ran[: int(MEASURED_SHARE * size)])]
        times = 1 if self.spaces.cpu else GPU_OVERSAMPLING
        drawn = self.spaces.random(-(-times * size // len(self.spaces)), self.numpy)
        self.model_keys, self.settled = {}, {}
        keys = self._read([key_of(one) for one in drawn], drawn)
        drawn = [one for one, key in zip(drawn, keys) if key is not None]
        self.rng.shuffle(drawn)
        start = best + drawn[: size - len(best)]
        if not start:
            return []
        if isinstance(traversal, Walk):
            traversal = traversal.on(self._graph())
        return traversal(start, self._score, self._mutate, self.rng)

    def _graph(self) -> Graph:
        if self.graph is None:
            workload = workload_of(self.context.mod, target_text(self.context.target))
            self.graph = Graph(self.spaces.draws, workload, self._judge)
        return self.graph

    def _judge(self, schedules: Sequence[Drawn]) -> tuple[Any, Any]:
        """Return margins and spreads of schedules; NaN for what is not read or exceeds a block's limits."""
        margins, spreads = np.full((2, len(schedules)), np.nan)
        if schedules:
            read, fits = self.spaces.read(self._reader(), schedules)
            places = np.flatnonzero(read.fine & fits)
            if places.size:
                margins[places], spreads[places] = self.scores.scorer.judge_columns(*read.phi(places))
        return margins, spreads

    def _mutate(self, drawn: Drawn) -> Drawn | None:
        row = self.spaces.draws[drawn[0]].mutate(drawn[1], self.rng)
        return None if row is None else [drawn[0], row]

    def _read(self, keys: Sequence[bytes], schedules: Sequence[Drawn]) -> list[bytes | None]:
        """Return the model's keys of schedules; None for one that exceeds a block's limits."""
        fresh = {key: drawn for key, drawn in zip(keys, schedules) if key not in self.model_keys}
        if fresh:
            read, fits = self.spaces.read(self._reader(), list(fresh.values()))
            self.model_keys.update(zip(fresh, self.scores.take(read, fits)))
            for place, (key, drawn) in enumerate(fresh.items()):
                self.settled[key] = self.spaces.settled(read, place, drawn)
        return [self.model_keys[key] for key in keys]

    def _score(self, keys: Sequence[bytes], schedules: Sequence[Drawn]) -> Any:
        known = self._read(keys, schedules)
        scores = self.scores.shared(known)
        scores[[key is None for key in known]] = np.nan
        return scores

    def _fall_back_to_tvm(self, error: Exception, level: int) -> None:
        """Switch to TVM's own search with the same model, because of `error`."""
        logger.log(
            level,
            "wmsched: %s is not searched in the model (%s: %s): TVM searches by itself",
            self.context.task_name or "main",
            type(error).__name__,
            str(error)[-300:],
        )
        _, size, designs, database, model = self.begun
        self.stock = self.make_stock(designs)
        self.stock._initialize_with_tune_context(self.context)
        self.stock.pre_tuning(self.left, size, designs, database, model)
