"""Schedules constructed, not measured: the first choices of the search in the model, for each function.

A search that asks the model alone (`wmsched.metaschedule.search_strategy`) ranks thousands of schedules of a
function in a quarter of a second. Its first choice takes, in the mean, 1.1 to 1.5 times what the best of 64
measured ones does. Constructed schedules are ranked, never timed: they stand in records of their own, with
their rank in the place of seconds, and neither teach a model nor count as trials.

>>> database = construct_relax(module, params, target)
>>> executable = compile_relax(database, module, target, params)
"""

from __future__ import annotations

import functools
import json
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

from wmsched.base.errors import WmschedError
from wmsched.base.silence import LOOK_SECONDS, Silence
from wmsched.construct.choice import Choice
from wmsched.construct.effort import shares, sized
from wmsched.construct.named import choice_of, traversal_of
from wmsched.construct.traversal import Traversal
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.defaults import (
    STOCK,
    check_cores,
    default_cost_model,
    strategy_of,
    target_object,
    to_tune,
)
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.neighbours import Neighbours
from wmsched.metaschedule.padding import pad_in_tiles
from wmsched.metaschedule.task_scheduler import Search
from wmsched.metaschedule.tasks import Task, argument_bytes
from wmsched.metaschedule.tasks import tasks as task_list
from wmsched.metaschedule.trace_reader import plain
from wmsched.model.ranker import has_threads
from wmsched.relax.passes.objects import FunctionFailed
from wmsched.search.evolution import Evolution
from wmsched.toolchain.resolve import is_cpu

__all__ = [
    "RANK_SECONDS",
    "Constructed",
    "construct",
    "construct_relax",
    "construct_tir",
    "copy_record",
    "database_of",
    "drop_failed",
    "is_constructed",
]

logger = logging.getLogger("wmsched")

#: Seconds that a constructed record has, three years: no measured program takes so long, and all are faster.
#: Further ranks follow in steps of 1 %, so that readers, which take the least for the best, keep the order.
RANK_SECONDS = 1e8
RANK_STEP = 0.01
NEAR = Evolution(population=256, generations=2)  # around the schedules of a like program


@dataclass
class Constructed:
    """Schedules of one task, the model's first choice first.

    Parameters
    ----------
    task : Task
    records : list of TuningRecord
        Empty where no space, or no schedule of it, is there: rules schedule the function then.
    why : str
        Why there are none; "" where there are.
    """

    task: Task
    records: list[Any] = field(default_factory=list)
    why: str = ""


def construct(
    tasks: Sequence[Task],
    target: Any,
    make_model: Callable[[], Any],
    *,
    count: int = 1,
    seed: int = 1,
    strategy: Callable[[], Any] | None = None,
    traversal: str | Traversal = "evolution",
    choice: str | Choice = "first",
    neighbours: bool = False,
    workers: int = 1,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[Constructed]:
    """Return up to `count` schedules of each task, chosen by a cost model, without a measurement.

    Parameters
    ----------
    tasks : sequence of Task
    target : tvm.target.Target
    make_model : callable () -> WorldModelCostModel
        Makes a frozen one; each worker has its own.
    count : int
        Schedules of each task.
    strategy : callable () -> SearchStrategy, optional
        By default the search in the model, and TVM's with this model where a space is not known.
    traversal : str or Traversal
        How the search goes through a task's schedules: a name of `wmsched.construct.TRAVERSALS`, such as
        "gensor", or one of your own. By name, an evolution goes further for a task that takes more of the
        model (`wmsched.construct.effort`). `strategy` has its own.
    choice : str or Choice
        Which of them is taken: a name of `wmsched.construct.CHOICES`, or one of your own.
    neighbours : bool
        Whether a task's evolution begins with the schedules of the nearest task before it that differs in
        extents alone (`wmsched.metaschedule.neighbours`). It is `NEAR` then, which is shorter.
    workers : int
        Processes that share the tasks: copies of this one, where it has loaded no model yet. The tasks of one
        that dies are constructed here.
    interrupted : callable (), optional
        Whether the user wants to leave: KeyboardInterrupt is raised then.

    Raises
    ------
    UnknownName
        No traversal or choice has that name.
    """
    size = max(count, 2)  # a search of one candidate is no smaller
    given, taken = traversal_of(traversal), choice_of(choice)
    ways = [given] * len(tasks)
    if isinstance(traversal, str) and isinstance(given, Evolution):
        parts = shares([(task.weight, task.flop, _bytes(task.mod)) for task in tasks])
        ways = [sized(given, part) for part in parts]
    groups, near = [[place] for place in range(len(tasks))], {}
    database = MemoryDatabase()
    if neighbours and isinstance(given, Evolution):
        known = Neighbours(tasks, lambda: database)
        groups, near = known.groups(), {"seeds": known, "near": NEAR}

    def chosen(places: Sequence[int]) -> Iterator[tuple[int, list[Any], str]]:
        """Rank, record and reason of the tasks at some places, one after the other."""
        model = make_model()
        search = Search(
            tasks,
            target,
            database,
            model,
            None,  # type: ignore[arg-type]  # nothing is measured
            round_size=size,
            seed=seed,
            interrupted=interrupted,
        )
        for place in places:
            task = search.tasks[place]
            search.strategy = strategy or strategy_of(
                model, size, target, evolution=ways[place], choice=taken, **near
            )
            candidates, why = search.choose(task, size)
            if is_cpu(target):
                candidates = [pad_in_tiles(one, task.mod, target) for one in candidates[:count]]
            found = [_record(task, rank, one, target) for rank, one in enumerate(candidates[:count])]
            for record in found:
                database.commit_tuning_record(record)
            yield place, found, why

    found = [Constructed(task) for task in tasks]
    for task in tasks:
        task.workload = database.commit_workload(task.mod)
    left = set(range(len(tasks)))
    if workers > 1 and len(groups) > 1 and not has_threads():
        for place, records, why in _shared(chosen, groups, min(workers, len(groups)), interrupted):
            workload = tasks[place].workload
            found[place].records = [TuningRecord.from_json(json.loads(one), workload) for one in records]
            found[place].why = why
            left.discard(place)
    if left:
        for place, made, why in chosen(sorted(left)):
            found[place].records, found[place].why = made, why
    return found


def construct_tir(mod: Any, target: Any, *, cost_model: Any = None, workers: int = 1, **how: Any) -> Any:
    """Construct schedules of the TensorIR functions of a module: `tune_tir` without a measurement.

    >>> database = construct_tir(mod, host_target())
    >>> library = tvm.compile(compile_tir(database, mod, host_target()).mod, host_target())

    Parameters
    ----------
    mod, target
        As of `tune_tir`.
    cost_model : WorldModel, str or Path, optional
        The model that ranks, or the name or folder of its bundle; by default the target's.
    workers : int
        Processes that share the functions.
    **how
        `count`, `seed`, `traversal` and `choice`, as of `construct`.

    Returns
    -------
    database : tvm.s_tir.meta_schedule.database.Database
        In memory; `compile_tir` takes the first choice from it. A function without a space has no record.

    Raises
    ------
    UnknownName
        There is no such bundle, traversal or choice.
    WmschedError
        There is no bundle for this target, or a processor's has no "num-cores".
    """
    functions = {"main": mod} if isinstance(mod, tirx.PrimFunc) else dict(mod.functions.items())
    tasks = [
        _task(str(getattr(name, "name_hint", name)), _normalize_mod(function))
        for name, function in functions.items()
        if isinstance(function, tirx.PrimFunc)
    ]
    return _constructed(tasks, target_object(target), cost_model, workers, how)


def construct_relax(
    mod: Any,
    params: Mapping[str, Any] | None,
    target: Any,
    *,
    cost_model: Any = None,
    workers: int = 1,
    pack_weights: bool | None = None,
    **how: Any,
) -> Any:
    """Construct schedules of the functions of a Relax program: `tune_relax` without a measurement.

    Parameters
    ----------
    mod, params, target, pack_weights
        As of `tune_relax`; `compile_relax` gets the same.
    cost_model, workers, **how
        As of `construct_tir`.

    Returns
    -------
    database : tvm.s_tir.meta_schedule.database.Database
        In memory; `compile_relax` takes the first choices from it, and schedules by rule what has none.

    Raises
    ------
    UnknownName, WmschedError
        As of `construct_tir`, and where no function can be scheduled.
    """
    target = target_object(target)
    prepared = to_tune(mod, params, target, pack_weights)
    return _constructed(task_list(prepared, target), target, cost_model, workers, how)


def _task(name: str, mod: Any) -> Task:
    try:
        return Task(name, mod, flop=float(estimate_tir_flops(mod)))
    except Exception:  # TVM cannot count library calls; its bytes stand for it
        return Task(name, mod)


def _bytes(mod: Any) -> float:
    try:
        return float(sum(argument_bytes(mod)))
    except Exception:  # symbolic shapes, which have no space either
        return 0.0


def _constructed(tasks: Sequence[Task], target: Any, cost_model: Any, workers: int, how: Any) -> Any:
    check_cores(target)
    import_intrinsics(target)
    name = default_cost_model(str(target.kind.name), logger.warning) if cost_model is None else cost_model
    if isinstance(name, str) and name in STOCK:
        raise WmschedError(
            f"no bundle for {target.kind.name} is shipped: cost_model= names one that can rank"
        )
    count = how.get("count", 1)
    make = functools.partial(WorldModelCostModel, name, round_size=max(count, 2))
    return database_of(construct(tasks, target, make, workers=workers, **how))


def _record(task: Task, rank: int, candidate: Any, target: Any) -> Any:
    seconds = [RANK_SECONDS * (1 + RANK_STEP * rank)]
    return TuningRecord(candidate.sch.trace, task.workload, seconds, target, candidate.args_info)


def _shared(
    chosen: Callable[[Sequence[int]], Iterator[tuple[int, list[Any], str]]],
    groups: Sequence[Sequence[int]],
    workers: int,
    interrupted: Callable[[], bool],
) -> Iterator[tuple[int, list[str], str]]:
    """Places, records as JSON and reasons, from copies of this process; none of one that dies.

    Places of a group are one copy's, in their order.
    """
    context = multiprocessing.get_context("fork")

    def work(places: Sequence[int], sender: Any) -> None:
        for place, records, why in chosen(places):
            sender.send((place, [_text(one) for one in records], why))
        sender.close()

    receivers: list[Any] = []
    processes: list[Any] = []
    for k in range(workers):
        receiver, sender = context.Pipe(duplex=False)
        places = [place for group in groups[k::workers] for place in group]
        process = context.Process(target=work, args=(places, sender), daemon=True)
        process.start()
        sender.close()
        receivers.append(receiver)
        processes.append(process)
    try:
        open_ends: list[Any] = list(receivers)
        silence = Silence([process.pid for process in processes])
        while open_ends:
            ready: list[Any] = list(wait(open_ends, timeout=LOOK_SECONDS))
            if interrupted():
                raise KeyboardInterrupt
            if ready:
                silence.end()
            elif why := silence.too_long():
                logger.warning("wmsched: workers are silent, and %s: constructing here", why)
                return
            for receiver in ready:
                try:
                    yield receiver.recv()
                except (EOFError, OSError):
                    open_ends.remove(receiver)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _text(record: Any) -> str:
    """JSON of a record; the record's own `as_json` of apache-tvm 0.27 does not know its numbers."""
    return json.dumps(plain(_ffi_api.TuningRecordAsJSON(record)))


def database_of(found: Sequence[Constructed]) -> Any:
    """Return a database in memory with all constructed schedules, by rank (`RANK_SECONDS`)."""
    database = MemoryDatabase()
    for one in found:
        for record in one.records:
            copy_record(record, database)
    return database


def copy_record(record: Any, database: Any) -> None:
    """Put another database's record into a database."""
    workload = database.commit_workload(record.workload.mod)
    entry = TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
    database.commit_tuning_record(entry)


def is_constructed(record: Any) -> bool:
    """Whether a record's schedule was constructed and never measured."""
    return all(float(seconds) >= RANK_SECONDS for seconds in record.run_secs or ())


def drop_failed(
    found: Sequence[Constructed], functions: Mapping[str, Any], failed: FunctionFailed
) -> Constructed | None:
    """Drop the first choice of the task that a function which could not be compiled belongs to.

    Parameters
    ----------
    functions : mapping of str to tvm.IRModule
        Normalized programs of the prepared module, by the function's name.

    Returns
    -------
    Constructed or None
        Whose schedule was dropped; None where the function is no task's, or its task has none left.
    """
    names = [name for name in functions if failed.function.startswith(name)]
    if not names:
        return None
    mod = functions[max(names, key=len)]
    for one in found:
        if one.records and tvm_ffi.structural_equal(one.task.mod, mod):
            one.records.pop(0)
            one.why = "" if one.records else f"no schedule compiles ({failed})"
            return one
    return None
