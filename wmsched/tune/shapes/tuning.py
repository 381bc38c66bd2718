"""``wmsched tune MODEL --shape ids=1,16/64/128``: one search over the functions of all shapes.

The functions of the largest shape are searched first. Those of another shape begin with the best schedules
of the nearest function that has been measured, and need fewer trials.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from wmsched.base.console import say
from wmsched.base.errors import WmschedError
from wmsched.base.interrupt import Interrupt
from wmsched.metaschedule import tasks as task_list
from wmsched.relax.importers.load import load_shapes
from wmsched.toolchain.resolve import meta_schedule_tvm
from wmsched.toolchain.target import Target
from wmsched.tune import folder as tuned_folder
from wmsched.tune.options import ModelOptions
from wmsched.tune.run import Run
from wmsched.tune.search import TRIALS_A_TASK, search
from wmsched.tune.shapes.choices import refuse_for_one_shape
from wmsched.tune.tune_model import checked_target, held, rest_constructed, settle

__all__ = ["TRIALS_A_NEIGHBOUR", "tune_shapes"]

TRIALS_A_NEIGHBOUR = 4  # of a function that another shape has, by default


def tune_shapes(
    options: ModelOptions,
    *,
    console: Console | None = None,
    measurer: Any = None,
    strategy: Callable[[], Any] | None = None,
) -> Any:
    """Tune each shape of a model in one run; see `tune_model`, whose parameters and errors are the same.

    Parameters
    ----------
    options : ModelOptions
        With `variants`, which say the shapes, that with most elements first.

    Returns
    -------
    Shaped
    """
    console = console or Console()
    tell = functools.partial(say, console)
    refuse_for_one_shape(options)
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    meta_schedule_tvm()
    from wmsched.relax.passes.objects import Objects
    from wmsched.tune.in_model_selection import database_of
    from wmsched.tune.shapes.several import owner, parts_of, run_of, write

    target = checked_target(options, searched=True)
    models = load_shapes(options.name, options.variants, options.states)
    settings, described, kept = settle(options, target, models)
    about = owner(options.out, described)
    with contextlib.ExitStack() as scopes:
        early = scopes.enter_context(Interrupt())  # what TVM makes of Ctrl-C is no fault of the model's
        notes = scopes.enter_context(tuned_folder.opened(options.out, about, resume=options.resume))
        for note in [*kept, *notes]:
            tell(note)
        folder = scopes.enter_context(tuned_folder.scratch(options.out))
        run = Run(
            options=options,
            model=models[0],
            target=Target.of(target),
            settings=settings,
            tell=tell,
            objects=Objects(folder),
        )
        parts = parts_of(options.out, models, described)
        for number, part in enumerate(parts):
            tell(f"shape {number + 1} of {len(parts)}: {part.label}: building it without tuning first")
            begun = settings
            _prepare(run, part, parts[0].settings or settings, folder, whole=not number)
            if early.pressed:  # it may have been taken for a reason to prepare the model otherwise
                raise KeyboardInterrupt
            if part.settings != begun and tuned_folder.about_of(options.out) is not None and not number:
                raise WmschedError(
                    f"{options.out}: its records are of the model prepared otherwise, which did not succeed "
                    "just now (the warning above says why): try again, or choose another --out"
                )
        about |= parts[0].settings
        tuned_folder.describe(options.out, about)
        database = database_of(options.out)
        with Interrupt() as interrupt:
            began = time.monotonic()
            tasks = distinct([part.tasks for part in parts])
            if options.trials is None and options.minutes is None:
                own = len(parts[0].tasks)
                trials = TRIALS_A_TASK * own + TRIALS_A_NEIGHBOUR * (len(tasks) - own)
                options = replace(options, trials=trials)
            devices = (
                None if measurer is not None else scopes.enter_context(held(options, target, settings, tell))
            )
            run = replace(run, options=options, interrupted=lambda: interrupt.pressed, devices=devices)
            if tasks:
                database = search(
                    run, tasks, database, console, measurer=measurer, strategy=strategy, neighbours=True
                )
            searched = time.monotonic() - began
            state = tuned_folder.records_state(options.out)
            for number, part in enumerate(parts):
                tell(f"shape {number + 1} of {len(parts)}: {part.label}")
                if tuned_folder.records_state(options.out) != state:
                    # a shape before corrected records of functions that this one may have, too
                    database, state = database_of(options.out), tuned_folder.records_state(options.out)
                _finish(run_of(run, part), part, database, folder)
            return write(run, about, parts, tell, searched)


def distinct(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the tasks of several modules in their order, equal ones once, with the sum of their weights."""
    import tvm_ffi

    found: dict[int, list[Any]] = {}
    ordered: list[Any] = []
    for task in (task for tasks in lists for task in tasks):
        alike = found.setdefault(tvm_ffi.structural_hash(task.mod), [])
        same = next((one for one in alike if tvm_ffi.structural_equal(one.mod, task.mod)), None)
        if same is None:
            names = {one.name for one in ordered}
            name, count = task.name, 1
            while name in names:  # the table of tasks has them by name
                count += 1
                name = f"{task.name}@{count}"
            same = replace(task, name=name, known=set(), rounds=[])
            alike.append(same)
            ordered.append(same)
        else:
            same.weight += task.weight
    return ordered


def _prepare(run: Run, part: Any, settings: Any, folder: Any, *, whole: bool) -> None:
    """Prepare a shape; its untuned build is made for the first, or where nothing else says what is right."""
    from wmsched.tune.prepare import Untuned, build_untuned, prepare_model

    options, target = run.options, run.target.tvm
    reference = None
    if not whole and not options.allow_different:
        reference, _ = part.model.reference()
    if reference is not None:
        part.untuned = Untuned(None, reference)
    else:
        with tuned_folder.scratch(part.folder) as scratch:
            part.untuned = build_untuned(
                part.model, target, scratch, run.objects, allow_different=options.allow_different
            )
            kept = folder / f"{part.label}.so"
            os.replace(part.untuned.library, kept)
            part.untuned = Untuned(kept, part.untuned.outputs)
    part.prepared, part.settings = prepare_model(
        part.model,
        target,
        settings,
        folder,
        part.untuned.outputs,
        run.objects,
        allow_different=options.allow_different,
    )
    try:
        part.tasks = task_list.tasks(part.prepared, target)
    except task_list.NothingToTune as error:  # a window or a mask as a model: it simply runs
        run.tell(f"{part.model.name}: {error}; it is built as it is")
        part.tasks = []


def _finish(run: Run, part: Any, database: Any, folder: Any) -> None:
    """Build, compare and time a shape's library, and write its folder."""
    from wmsched.metaschedule.tasks import load_history
    from wmsched.tune.finish import finish
    from wmsched.tune.prepare import Untuned, build_untuned

    load_history(part.tasks, database)
    rest = rest_constructed(run, part.prepared, part.tasks, database)
    tuned_folder.describe(part.folder, part.about | part.settings)
    for _ in range(2):
        part.found = finish(run, part.prepared, part.untuned, part.tasks, **rest)
        if part.found.kept:
            return
        run.tell(f"{part.label}: {part.found.why}: building it without tuning")
        untuned = build_untuned(part.model, run.target.tvm, folder, run.objects)
        part.untuned = Untuned(untuned.library, untuned.outputs)
        rest |= {"database": database, "link": None}
    raise WmschedError(f"{part.label}: {part.found.why}")
