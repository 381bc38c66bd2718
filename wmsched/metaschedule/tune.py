"""MetaSchedule's `tune_tir`, `tune_relax` and their build functions, with wmsched's defaults.

>>> from wmsched.metaschedule.tune import compile_relax, host_target, tune_relax
>>> target = tvm.target.Target(host_target())
>>> database = tune_relax(module, params, target, "work", 512)
>>> executable = compile_relax(database, module, target, params)

A script only changes its import. Defaults are the target's bundle as cost model, our `search_strategy`,
split-K spaces on a GPU (`split_reduction`), builders that stay, and paired timing on several sets of buffers.
Processor builds have vector math and loops, both in the search and in `compile_tir`, `compile_relax` and
`static_shape_tuning_pipeline`. An argument replaces its default.

Importing this module imports apache-tvm. Import it before any other use of apache-tvm: it first finds
PyTorch's CUDA libraries.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmsched.base.errors import WmschedError
from wmsched.base.files import locked
from wmsched.base.interrupt import Interrupt
from wmsched.metaschedule import tasks as task_list
from wmsched.schedules import database as meta_database
from wmsched.search.budget import round_size
from wmsched.toolchain.resolve import meta_schedule_tvm

importlib.import_module("xgboost")  # before TVM, as everywhere here
tvm = meta_schedule_tvm()

from tvm import relax, tirx  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402
from tvm.s_tir.meta_schedule.logging import get_loggers_from_work_dir  # noqa: E402
from tvm.s_tir.meta_schedule.tune_context import _normalize_mod  # noqa: E402
from tvm.s_tir.meta_schedule.utils import fork_seed  # noqa: E402

from wmsched.codegen.register import with_vector_math  # noqa: E402
from wmsched.metaschedule.defaults import (  # noqa: E402
    how_measured,
    round_of,
    runner_of,
    target_object,
    to_tune,
    uses_vector_math,
    with_defaults,
)
from wmsched.relax.passes import pipeline as relax_build  # noqa: E402
from wmsched.toolchain.targets import meta_host_target as host_target  # noqa: E402

logger = logging.getLogger("wmsched")

__all__ = [
    "compile_relax",
    "compile_tir",
    "host_target",
    "static_shape_tuning_pipeline",
    "tune_relax",
    "tune_tir",
]


def tune_tir(
    mod: Any,
    target: Any,
    work_dir: str | os.PathLike[str],
    max_trials_global: int,
    *,
    online: bool = False,
    vector_math: bool | None = None,
    cold_caches: bool = False,
    rpc_config: Any = None,
    **upstream: Any,
) -> Any:
    """Tune the TensorIR functions of a module, like ``ms.tune_tir``.

    >>> database = tune_tir(mod, host_target(), "work", 64)
    >>> library = tvm.compile(compile_tir(database, mod, host_target()).mod, host_target())

    Parameters
    ----------
    mod, target, work_dir, max_trials_global, **upstream
        As upstream. `cost_model` may also be a `WorldModel` or the name or folder of a bundle. By default a
        function's trials are spread over rounds of 16 or more (`wmsched.search.budget`).
    online : bool
        Whether a bundle also learns from this run's measurements.
    vector_math : bool, optional
        Whether builds have vector code for exp, tanh and the like, and for loops
        (`wmsched.codegen.register`). By default on for a processor, unless `builder` is given.
    cold_caches : bool
        Whether a processor's candidates are timed by single calls after a cache flush, as in a model,
        instead of by repeated calls.
    rpc_config : tvm.s_tir.meta_schedule.runner.RPCConfig, optional
        Time the candidates on all devices behind this tracker, which run ``wmsched device``, in place of a
        `runner`. `session_timeout_sec` is how long a device may be silent beyond a candidate's time limit.

    Returns
    -------
    database : tvm.s_tir.meta_schedule.database.Database
        `compile_tir` takes the best schedule from it.

    Raises
    ------
    UnknownName
        There is no such bundle.
    EnvironmentProblem
        No tracker or device answers, or the devices are of several kinds.
    WmschedError
        A processor's target has no "num-cores", or another run uses this `work_dir`.
    """
    target = target_object(target)
    functions = [mod] if isinstance(mod, tirx.PrimFunc) else list(mod.functions.values())
    count = max(1, sum(isinstance(each, tirx.PrimFunc) for each in functions))
    size = upstream.get("num_trials_per_iter") or round_size(-(-max_trials_global // count))
    options = with_defaults(
        target,
        upstream,
        size,
        online=online,
        vector_math=vector_math,
        cold_caches=cold_caches,
        on_devices=rpc_config is not None,
    )
    how = how_measured(target, upstream, vector_math=vector_math, cold_caches=cold_caches)
    with (
        _one_at_a_time(work_dir, upstream, how),
        Interrupt(),
        runner_of(rpc_config, target, cold_caches) as own,
    ):
        options |= own
        return ms.tune_tir(mod, target, os.fspath(work_dir), max_trials_global, **options)


def tune_relax(
    mod: Any,
    params: Mapping[str, Any] | None,
    target: Any,
    work_dir: str | os.PathLike[str],
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    online: bool = False,
    vector_math: bool | None = None,
    cold_caches: bool = True,
    pack_weights: bool | None = None,
    rpc_config: Any = None,
    **upstream: Any,
) -> Any:
    """Tune the functions of a Relax program, like ``ms.relax_integration.tune_relax``.

    Parameters
    ----------
    mod, params, target, work_dir, max_trials_global, max_trials_per_task, op_names, **upstream
        As upstream; views and functions with symbolic shapes are no tasks. The default round size gives
        each task a round, even with few trials.
    online, vector_math, cold_caches, rpc_config
        As for `tune_tir`.
    pack_weights : bool, optional
        Whether schedules may rewrite the layout of constant weights, which `compile_relax` then does once,
        at build time; give it the same value. By default on for a processor.

    Returns
    -------
    database : tvm.s_tir.meta_schedule.database.Database
        `compile_relax` takes the best schedules from it.

    Raises
    ------
    UnknownName
        There is no such bundle.
    WmschedError
        No task exists or matches `op_names`, a processor's target has no "num-cores", or another run uses
        this `work_dir`.
    """
    target = target_object(target)
    prepared = to_tune(mod, params, target, pack_weights)
    tasks = task_list.tasks(prepared, target, upstream.get("module_equality") or "structural")
    if op_names:
        names = [task.name for task in tasks]
        tasks = [task for task in tasks if any(name in task.name for name in op_names)]
        if not tasks:
            raise WmschedError(f"op_names={list(op_names)!r}: no task is called so; there are {names}")
    size = upstream.get("num_trials_per_iter") or round_of(max(1, max_trials_global // len(tasks)))
    options = with_defaults(
        target,
        upstream,
        size,
        online=online,
        vector_math=vector_math,
        cold_caches=cold_caches,
        on_devices=rpc_config is not None,
    )
    space, strategy = options.pop("space"), options.pop("strategy", "evolutionary")
    threads = options.pop("num_tuning_cores")
    folder, seed = os.fspath(work_dir), options.pop("seed", None)
    loggers = get_loggers_from_work_dir(folder, [task.name for task in tasks])
    contexts = [
        ms.TuneContext(
            mod=task.mod,
            target=target,
            space_generator=space,
            search_strategy=strategy,
            task_name=task.name,
            logger=own,
            rand_state=state,
            num_threads=threads,
        ).clone()
        for task, own, state in zip(tasks, loggers, fork_seed(seed, n=len(tasks)), strict=True)
    ]
    how = how_measured(target, upstream, vector_math=vector_math, cold_caches=cold_caches)
    with (
        _one_at_a_time(work_dir, upstream, how),
        Interrupt(),
        runner_of(rpc_config, target, cold_caches) as own,
    ):
        options |= own
        return ms.tune_tasks(
            tasks=contexts,
            task_weights=[float(task.weight) for task in tasks],
            work_dir=folder,
            max_trials_global=max_trials_global,
            max_trials_per_task=max_trials_per_task,
            **options,
        )


@contextmanager
def _one_at_a_time(
    work_dir: str | os.PathLike[str], upstream: Mapping[str, Any], how: Mapping[str, Any]
) -> Iterator[None]:
    """Lock a folder's database for one run, and repair a line that a killed run left unfinished.

    Two runs would number their programs independently and mix up the records. A database that the user
    passes is not locked.

    Warn if records were built or timed otherwise than `how`: times with warm caches are shorter for any
    schedule, so they would win.
    """
    if upstream.get("database") not in (None, "json"):  # "json" is the folder's too
        yield
        return
    folder = Path(work_dir)
    with locked(folder / ".lock", whose=folder, option="work_dir"):
        for note in meta_database.mend(folder):
            logger.warning("wmsched: %s", note)
        if before := meta_database.measured_otherwise(folder, how):
            logger.warning(
                "wmsched: %s has records that were measured %s, and this run measures %s: such times cannot "
                "be compared, and the least is taken for the best. Name another work_dir, or delete that one",
                folder,
                before,
                meta_database.worded(how),
            )
        yield


def compile_tir(database: Any, mod: Any, target: Any, *, vector_math: bool | None = None) -> Any:
    """Return the best schedule of a function, like ``ms.tir_integration.compile_tir``; None without one.

    Build it like its candidates: ``tvm.compile(compile_tir(...).mod, target)``.

    Parameters
    ----------
    database, mod, target
        As upstream.
    vector_math : bool, optional
        As in the search; by default on for a processor.
    """
    target = target_object(target)
    record = database.query_tuning_record(_normalize_mod(mod), target, "main")
    if record is None:
        return None
    vectors = uses_vector_math(target, vector_math)
    # A deep copy: a schedule may change parts of a shared program in place, and the database would no longer
    # find its record.
    own = tvm.ir.load_json(tvm.ir.save_json(record.workload.mod))
    schedule = tvm.s_tir.Schedule(with_vector_math(own) if vectors else own)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule


def compile_relax(
    database: Any,
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None,
    enable_warning: bool = False,
    *,
    vector_math: bool | None = None,
    pack_weights: bool | None = None,
) -> Any:
    """Build an executable with the best schedules, like ``ms.relax_integration.compile_relax``.

    Parameters
    ----------
    database, mod, target, params, enable_warning
        As upstream.
    vector_math, pack_weights : bool, optional
        The same values as for `tune_relax`.
    """
    target = target_object(target)
    return relax_build.compile_module(
        to_tune(mod, params, target, pack_weights),
        target,
        database,
        vector_math=uses_vector_math(target, vector_math),
        enable_warning=enable_warning,
    )


def static_shape_tuning_pipeline(
    total_trials: int,
    target: Any,
    work_dir: str | os.PathLike[str] = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
    **options: Any,
) -> Any:
    """Return the pass of ``relax.get_pipeline("static_shape_tuning", ...)`` that tunes with `tune_relax`.

    Build its result like its candidates: ``tvm.compile(mod, target)``.

    Parameters
    ----------
    total_trials, target, work_dir, cpu_weight_prepack, max_trials_per_task
        As upstream.
    **options
        Options of `tune_relax`.
    """
    target = target_object(target)
    vectors = uses_vector_math(target, options.get("vector_math"), options.get("builder"))
    folder = os.fspath(work_dir)
    before, after = [], []
    if cpu_weight_prepack:
        before = [relax.transform.AttachAttrLayoutFreeBuffers()]
        after = [
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.LiftTransformParams(),
            relax.transform.FoldConstant(),
        ]

    @tvm.transform.module_pass(opt_level=0, name="wmsched.tune")
    def tuned(module: Any, _: Any) -> Any:
        tune_relax(
            module,
            None,
            target,
            folder,
            total_trials,
            max_trials_per_task,
            **{"pack_weights": False} | options,  # weights are arguments, or have the attribute already
        )
        return module

    @tvm.transform.module_pass(opt_level=0, name="wmsched.static_shape_tuning")
    def pipeline(module: Any, _: Any) -> Any:
        with target:
            found = tvm.transform.Sequential(
                [
                    relax.transform.DecomposeOpsForInference(),
                    relax.transform.CanonicalizeBindings(),
                    relax.pipeline.zero_pipeline(),
                    *before,
                    *([tuned] if total_trials > 0 else []),
                    relax.transform.MetaScheduleApplyDatabase(folder),
                    *after,
                ]
            )(module)
        return with_vector_math(found) if vectors else found

    return pipeline
