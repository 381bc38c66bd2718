"""``wmsched tune MODEL``: a whole model through Relax, tuned with MetaSchedule, compiled and timed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from wmsched import __version__, meta_database, tuned_folder
from wmsched.backends.machine import meta_target, need_device
from wmsched.backends.placements import PLACES
from wmsched.backends.relax_models import Model, load
from wmsched.backends.relax_shapes import Shapes
from wmsched.cores import usable_cores
from wmsched.describe import shipped
from wmsched.interrupt import Interrupt
from wmsched.live import Line, LiveTable
from wmsched.resolve import check_linker, is_cpu, meta_schedule_tvm
from wmsched.tuning_log import GrowingLog

if TYPE_CHECKING:  # it imports TVM
    from wmsched.backends.relax_finish import Tuned

logger = logging.getLogger("wmsched")

DEFAULT_META_BUNDLE = "x86-meta"
DEFAULT_CUDA_BUNDLE = "cuda-meta"
OTHER_BUNDLE = "x86-avx512"  # AutoScheduler's: it ranks traces by the columns that both schedulers have
STOCK = ("xgb", "random")  # MetaSchedule's own models, by its names
TRIALS_A_TASK = 16
FINALISTS = 4
POPULATION, LEAST, MOST = 8, 128, 512  # of a round's search: for each measurement, at least, at most
GENERATIONS = 3
SMALL, ROUND = 4, 64  # measurements of a task between two searches, where there are so many, and at most


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """One tuning run of a whole model.

    Parameters
    ----------
    name : str
        A file ``.onnx`` or ``.pt2``, or a model of `wmsched.zoo.torch_models`.
    out : Path
        Folder of the database, the library and the report.
    trials : int, optional
        Measurements in all, those of an earlier run that is resumed included. Without it and without
        `minutes` sixteen for each task.
    minutes : float, optional
        Of search in this run, at most; reading the model and building the library are not in it.
    shapes : mapping of input name to shape
        Where the file has symbolic ones.
    cost_model : str, optional
        A bundle's name or folder, or "xgb" or "random" for MetaSchedule's own; by default the shipped
        bundle that suits the target best.
    resume, online, diversity, seed
        As in `wmsched.tune.TuneOptions`.
    target : str, optional
        As TVM takes it, JSON or a tag; by default this machine's processor.
    min_repeat_ms, timeout : int
        Each candidate is timed for at least so long; a build or a run is given up after `timeout` seconds.
    places : int
        Sets of buffers that a processor's candidate is timed on; see `meta_places`.
    vector_math : bool
        Whether a processor's candidates and library have exp, tanh, erf and log in vectors, at most 2 units
        in the last place off, in place of TVM's calls of the C library (`wmsched.backends.vector_math`), more
        of their loops in vectors, and prefetches (`wmsched.backends.lowering`).
    pack_weights : bool
        Whether a processor's schedules lay the weights out anew, once, when the library is built.
    channels_last : bool
        Whether convolutions have their channels last on a processor, and batch normalisation in their weights
        (`wmsched.backends.relax_layouts`).
    wide_fusion : bool
        Whether, on a processor, what is computed of each element of a product comes before the reshapes that
        follow the product, and so into its function (`wmsched.backends.relax_fusion`).
    cold_caches : bool
        Whether each call of a processor's candidate comes after a flush of the caches, as in AutoScheduler:
        in the model a function's weights come from memory, for other functions' have been read since.
        `min_repeat_ms` is not heeded then. An earlier run that is resumed goes on with all five as it began.
    finalists : int
        Of a processor's functions so many schedules, those fastest by themselves, are timed in the model at
        the end (`wmsched.backends.relax_finalists`); with 1 the fastest by itself is taken.
    """

    name: str
    out: Path
    trials: int | None = None
    minutes: float | None = None
    shapes: Shapes = field(default_factory=dict)
    cost_model: str | None = None
    resume: bool = False
    online: bool = False
    diversity: float = 1.0
    target: str | None = None
    seed: int | None = None
    min_repeat_ms: int = 60
    timeout: int = 15
    places: int = PLACES
    vector_math: bool = True
    pack_weights: bool = True
    channels_last: bool = True
    wide_fusion: bool = True
    cold_caches: bool = True
    finalists: int = FINALISTS


def tune_model(
    options: ModelOptions,
    *,
    console: Console | None = None,
    measurer: Any = None,
    strategy: Callable[[], Any] | None = None,
) -> Tuned:
    """Carry out the run; the database is complete up to the last measurement at every moment.

    Parameters
    ----------
    measurer : Measurer, optional
        In place of this machine's.
    strategy : callable () -> SearchStrategy, optional
        In place of MetaSchedule's evolutionary search.

    Raises
    ------
    UnknownName
        There is no such model, bundle or input.
    LogError
        The database has records and `resume` was not asked for, or it cannot be read.
    EnvironmentProblem
        There is no TVM with MetaSchedule, no package to read the file with, or no device for the target.
    WmschedError
        The model cannot be imported or built or has nothing to tune, or the folder is another model's.
    """
    console = console or Console()
    tell = _teller(console)
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    tvm = meta_schedule_tvm()
    from tvm.support import cc

    from wmsched.backends import relax_build
    from wmsched.backends.relax_finalists import database_of
    from wmsched.backends.relax_finish import finish
    from wmsched.backends.relax_prepare import SETTINGS, build_untuned, prepare_model

    target = meta_target(options.target)
    need_device(target, options.target)
    check_linker(cc)
    model = load(options.name, options.shapes)
    settings, kept = tuned_folder.settled(
        options.out, {name: getattr(options, name) and is_cpu(target) for name in SETTINGS}
    )
    with contextlib.ExitStack() as scopes:
        about = _about(model, target, tvm.__version__)
        notes = scopes.enter_context(tuned_folder.opened(options.out, about, resume=options.resume))
        for note in [*kept, *notes]:
            tell(note)
        folder = Path(scopes.enter_context(tempfile.TemporaryDirectory(prefix="wmsched-")))
        tell(f"{options.name}: building it without tuning first")
        untuned = build_untuned(model, target, folder)
        prepared, settings = prepare_model(model, target, settings, folder, untuned.outputs)
        tasks = relax_build.tasks(prepared, target)
        tuned_folder.describe(options.out, about | settings)
        database = database_of(options.out)
        with Interrupt() as interrupt:
            _search(
                options,
                target,
                tasks,
                database,
                console,
                lambda: interrupt.pressed,
                measurer=measurer,
                strategy=strategy,
                vector_math=settings["vector_math"],
                cold_caches=settings["cold_caches"],
            )
            return finish(
                options.out,
                model,
                prepared,
                untuned,
                target,
                tasks,
                database,
                tell,
                interrupted=lambda: interrupt.pressed,
                vector_math=settings["vector_math"],
                finalists=options.finalists,
            )


def _teller(console: Console) -> Callable[[str], None]:
    def tell(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    return tell


def _search(
    options: ModelOptions,
    target: Any,
    tasks: list[Any],
    database: Any,
    console: Console,
    interrupted: Callable[[], bool],
    *,
    measurer: Any,
    strategy: Callable[[], Any] | None,
    vector_math: bool,
    cold_caches: bool,
) -> None:
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    from wmsched.backends.meta_believe import Believed
    from wmsched.backends.meta_intrinsics import import_intrinsics
    from wmsched.backends.meta_measure import Measurer
    from wmsched.backends.meta_search import Search

    tell = _teller(console)
    trials = options.trials
    if trials is None and options.minutes is None:
        trials = TRIALS_A_TASK * len(tasks)
    left = None if trials is None else trials - len(database)
    share = TRIALS_A_TASK if trials is None else max(1, trials // len(tasks))
    # A first round for each task, and as much again where it pays most; few are not worth a start of workers.
    size = min(ROUND, max(min(share, SMALL), -(-share // 2)))
    if left is not None and left <= 0:
        tell(f"{options.out} has its {trials} trials already")
        return
    if trials is not None and trials < len(tasks):
        tell(f"{trials} trials are for the {trials} of {len(tasks)} tasks with most operations, one for each")
    seed = options.seed or random.randrange(1, 1 << 31)
    import_intrinsics(target)
    cost_model, what, learns = _cost_model(options, target, size, seed, tell)
    tell(f"{options.name}: {len(tasks)} tasks; cost model {what}")
    lines = {task.name: Line(task.name, task.flop, task.weight) for task in tasks}
    # tries its workers out, which takes seconds
    measurer = measurer or Believed(
        Measurer(
            target,
            timeout=options.timeout,
            min_repeat_ms=0 if cold_caches else options.min_repeat_ms,
            places=options.places,
            vector_math=vector_math,
        )
    )
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    with LiveTable(lines, left, console, until=until) as table:
        search = Search(
            tasks,
            target,
            database,
            cost_model,
            measurer,
            round_size=size,
            seed=seed,
            learns=learns,
            strategy=strategy
            or (
                EvolutionarySearch
                if what in STOCK
                else functools.partial(_search_for, size, draws_many=not is_cpu(target))
            ),
            started=lambda task: table.started(task.name),
            measured=lambda task, seconds: table.measured(task.name, seconds),
            note=tell,
            interrupted=interrupted,
            log=GrowingLog(options.out / meta_database.RECORDS),
        )
        for task in tasks:  # what an earlier run measured
            line = lines[task.name]
            line.trials, line.failed, line.best = task.trials, task.failed, task.best
        search.run(
            left if left is not None else 1 << 30, lambda: until is not None and time.monotonic() >= until
        )
    for kind, count in getattr(cost_model, "problems", {}).items():
        logger.warning("wmsched: %s (%d times)", kind, count)


def _search_for(size: int, *, draws_many: bool = False) -> Any:
    """MetaSchedule's search as a pretrained model wants it, for rounds of so many measurements.

    `draws_many`: on a GPU most of a convolution's schedules take more than a block may, and TVM gives a task
    up after five draws of a population that leave it fewer than fifty.

    Its own, 512 candidates in four generations, is for a model that is fitted as it goes. Here most of a
    run's time was the search's; with 128 in three it took 8 seconds for 16 measurements in place of 20, and
    found kernels 1.03 times as fast (three convolutions of ResNet-50, two seeds, Zen 5).
    """
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    population = MOST if draws_many else min(max(POPULATION * size, LEAST), MOST)
    return EvolutionarySearch(population_size=population, genetic_num_iters=GENERATIONS)


def _cost_model(
    options: ModelOptions, target: Any, size: int, seed: int, tell: Callable[[str], None]
) -> tuple[Any, str, bool]:
    """The model, what it is called, and whether it learns."""
    from tvm.s_tir import meta_schedule as ms

    from wmsched.backends.meta_schedule import WorldModelCostModel

    name = options.cost_model or default_cost_model(str(target.kind.name), tell)
    if name == "random":
        return ms.cost_model.RandomModel(seed=seed), name, False
    if name == "xgb":
        model = ms.cost_model.CostModel.create("xgb", num_tuning_cores=usable_cores(), tree_method="auto")
        return model, name, True
    ours = WorldModelCostModel(name, online=options.online, diversity=options.diversity, round_size=size)
    return ours, name, options.online


def default_cost_model(kind: str, tell: Callable[[str], None]) -> str:
    """The best model for targets of a kind that comes with this copy of wmsched; says so where it is a
    makeshift."""
    have = shipped()
    if kind == "cuda" and DEFAULT_CUDA_BUNDLE in have:
        return DEFAULT_CUDA_BUNDLE
    if not is_cpu(kind):
        tell(f"no bundle for {kind} is shipped: MetaSchedule's own xgb is used; --cost-model names another")
        return "xgb"
    if DEFAULT_META_BUNDLE in have:
        return DEFAULT_META_BUNDLE
    tell(
        f"the bundle {DEFAULT_META_BUNDLE} is not in this copy of wmsched: {OTHER_BUNDLE} is used, which was "
        "trained on AutoScheduler's logs; --cost-model names another"
    )
    return OTHER_BUNDLE


def _about(model: Model, target: Any, tvm_version: str) -> dict[str, Any]:
    from wmsched.backends.relax_build import identity
    from wmsched.backends.tir_workload import target_text

    inputs = [
        {"name": name, "shape": list(data.shape), "dtype": str(data.dtype).removeprefix("torch.")}
        for name, data in model.inputs.items()
    ]
    return {
        "model": model.name,
        "hash": identity(model.module),
        "target": target_text(target),
        "inputs": inputs,
        "tvm": tvm_version,
        "wmsched": __version__,
    }
