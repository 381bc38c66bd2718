"""Tuning run of ``wmsched tune MODEL``: import to Relax, tune with MetaSchedule, compile, time."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from wmsched import __version__
from wmsched.base.console import say
from wmsched.base.cores import THREADS, leave_unbound, model_threads, tvm_threads
from wmsched.base.errors import WmschedError
from wmsched.base.interrupt import Interrupt
from wmsched.metaschedule import tasks as task_list
from wmsched.relax.importers.load import load
from wmsched.relax.importers.model import Model
from wmsched.toolchain.resolve import check_linker, is_cpu, meta_schedule_tvm
from wmsched.toolchain.target import Target
from wmsched.toolchain.targets import meta_target, need_compiler, need_device, with_key
from wmsched.tune import folder as tuned_folder
from wmsched.tune.options import ModelOptions
from wmsched.tune.run import Run
from wmsched.tune.search import search
from wmsched.tune.state import split

if TYPE_CHECKING:  # it imports TVM
    from wmsched.tune.finish import Tuned


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
        Replacement of `metaschedule.search_strategy`, or of MetaSchedule's search with its own cost models.

    Returns
    -------
    Tuned
        What was measured, and the library that is the better one.

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
    tell = functools.partial(say, console)
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    meta_schedule_tvm()
    from wmsched.metaschedule.tasks import load_history
    from wmsched.relax.passes.objects import Objects
    from wmsched.tune.finish import finish
    from wmsched.tune.graph.choose import GRAPH, settled_graph
    from wmsched.tune.in_model_selection import database_of
    from wmsched.tune.prepare import build_untuned, in_half, prepare_model

    target = checked_target(options, searched=True)
    model = in_half(load(options.name, options.shapes, options.states), options.half, target)
    settings, (about,), kept = settle(options, target, [model])
    with contextlib.ExitStack() as scopes:
        early = scopes.enter_context(Interrupt())  # what TVM makes of Ctrl-C is no fault of the model's
        notes = scopes.enter_context(tuned_folder.opened(options.out, about, resume=options.resume))
        for note in [*kept, *notes]:
            tell(note)
        # in the user's folder: what a killed run leaves of it a later one removes
        folder = scopes.enter_context(tuned_folder.scratch(options.out))
        if model.of_gpu and is_cpu(target):
            tell(f"{options.name}: exported on a GPU, tuned for this processor (--target cuda: the GPU)")
        tell(f"{options.name}: building it without tuning first")
        objects = Objects(folder)
        untuned = build_untuned(model, target, folder, objects, allow_different=options.allow_different)
        begun = settings
        run = Run(
            options=options,
            model=model,
            target=Target.of(target),
            settings=settings,
            tell=tell,
            objects=objects,
            interrupted=lambda: early.pressed,
        )
        graph = settled_graph(run)
        prepared, settings = prepare_model(
            model,
            target,
            settings,
            folder,
            untuned.outputs,
            objects,
            graph,
            allow_different=options.allow_different,
        )
        try:
            tasks = task_list.tasks(prepared, target)
        except task_list.NothingToTune as error:  # a window or a mask as a model: it simply runs
            tell(f"{options.name}: {error}; it is built as it is")
            tasks = []
        if early.pressed:  # it may have been taken for a reason to prepare the model otherwise
            raise KeyboardInterrupt
        if settings != begun and tuned_folder.about_of(options.out) is not None:
            raise WmschedError(
                f"{options.out}: its records are of the model prepared otherwise, which did not succeed just "
                "now (the warning above says why): try again, or choose another --out"
            )
        tuned_folder.describe(options.out, about | settings | {GRAPH: list(graph)})
        database = database_of(options.out)
        with Interrupt() as interrupt:
            began = time.monotonic()
            devices = (
                None if measurer is not None else scopes.enter_context(held(options, target, settings, tell))
            )
            run = replace(run, settings=settings, interrupted=lambda: interrupt.pressed, devices=devices)
            if tasks:
                database = search(run, tasks, database, console, measurer=measurer, strategy=strategy)
            searched = time.monotonic() - began
            if not any(task.trials for task in tasks):  # no search was needed, which would have read them
                load_history(tasks, database)
            rest = rest_constructed(run, prepared, tasks, database)
            return finish(run, prepared, untuned, tasks, searched=searched, **rest)


def checked_target(options: ModelOptions, *, searched: bool = False) -> Any:
    """Return TVM's target of a run, after whatever it needs here and lacks was told.

    A search runs programs: on this machine, or on the devices behind a tracker, whose target and threads
    it takes.
    """
    from tvm.support import cc

    from wmsched.codegen.tf32 import KEY
    from wmsched.relax.bf16.rewrite import check

    text = options.target
    if searched and options.rpc is not None:
        from wmsched.metaschedule.rpc.runner import describe

        device = describe(options.rpc)
        text = text or device["target"]
        os.environ[THREADS] = str(device["threads"])  # programs run here, too, as they do on the devices
    target = meta_target(text)
    if searched:
        need_device(target, text)
    else:
        need_compiler(target, text)
    check_linker(cc)
    if options.bf16:
        check(target)
    return with_key(target, KEY) if options.half == KEY and target.kind.name == "cuda" else target


def settle(
    options: ModelOptions, target: Any, models: Sequence[Model]
) -> tuple[dict[str, bool], list[dict[str, Any]], list[str]]:
    """Return a run's settings, what ``model.json`` says of each model, and notes of what its folder keeps."""
    from wmsched.tune.prepare import BF16, GPU_SETTINGS, SETTINGS

    known = {name for name in (*SETTINGS, BF16) if is_cpu(target)}
    known |= set(GPU_SETTINGS) if target.kind.name == "cuda" else set()
    asked = {name: getattr(options, name) and name in known for name in (*SETTINGS, BF16)}
    settings, kept = tuned_folder.settled(options.out, asked)
    asked_for = {"state_options": list(options.states)} if options.states else {}
    described = [describe_run(model, target) | asked_for for model in models]
    if is_cpu(target):  # before TVM runs anything
        threads, said = run_on(options.out)
        described = [about | {"threads": threads} for about in described]
        kept += said
    return settings, described, kept


def rest_constructed(run: Run, prepared: Any, tasks: Sequence[Any], database: Any) -> dict[str, Any]:
    """Return `finish`'s arguments of a search's end: what no trial was given has a constructed schedule."""
    from wmsched.tune.finish import BY_RULE, CONSTRUCTED
    from wmsched.tune.schedules import ByRule, compilable, construct_schedules, unmeasured

    by_rule, chosen, link = ByRule(), construct_schedules(run, unmeasured(tasks)), None
    if any(one.records for one in chosen):
        compiled = compilable(run, prepared, chosen, database, by_rule)
        database, link = compiled.database, compiled.link
    return {
        "database": database,
        "link": link,
        "constructed": None if tasks else 0.0,
        "schedules": {one.task.name: CONSTRUCTED if one.records else BY_RULE for one in chosen},
        "by_rule": by_rule,
    }


@contextlib.contextmanager
def held(
    options: ModelOptions, target: Any, settings: Mapping[str, bool], tell: Callable[[str], None]
) -> Iterator[Any]:
    """A runner on the devices behind the tracker; None without one."""
    if options.rpc is None:
        yield None
        return
    from wmsched.metaschedule.measure.measurer import WORKER_START_SECONDS
    from wmsched.metaschedule.rpc.runner import opened

    with opened(
        options.rpc,
        target,
        tell=tell,
        timeout=options.timeout + WORKER_START_SECONDS,
        places=options.places,
        min_repeat_ms=0 if settings["cold_caches"] else options.min_repeat_ms,
    ) as devices:
        yield devices


def run_on(out: Path) -> tuple[int, list[str]]:
    """Have TVM run programs on a folder's number of threads; that number, and what there is to say of it."""
    leave_unbound(os.environ)
    own = tvm_threads(os.environ)
    threads, notes = tuned_folder.settled_threads(out, model_threads(os.environ), before=own)
    os.environ[THREADS] = str(threads)
    if threads != own and not notes:
        notes = [f"programs run on {threads} threads, one for each core; {THREADS} sets another number"]
    return threads, notes


def describe_run(model: Model, target: Any) -> dict[str, Any]:
    import tvm

    from wmsched.relax.bf16.dots import instructions as bfloat16_instructions
    from wmsched.relax.int8.rewrite import instructions
    from wmsched.relax.passes.pipeline import identity
    from wmsched.toolchain.targets import target_text

    inputs = [
        {"name": name, "shape": list(data.shape), "dtype": str(data.dtype).removeprefix("torch.")}
        for name, data in model.inputs.items()
    ]
    inputs, states = split(inputs, model.states)
    return {
        "model": model.name,
        "hash": identity(model.module),
        "target": target_text(target),
        "inputs": inputs,
        **({"states": states} if states else {}),
        "returns": model.returns,
        "tvm": tvm.__version__,
        "wmsched": __version__,
        "eight_bit_instructions": instructions(model.module, target),
        "bfloat16_instructions": bfloat16_instructions(target),
    }
