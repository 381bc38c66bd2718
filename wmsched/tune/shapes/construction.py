"""``wmsched compile MODEL --shape ids=1,16/64/128``: each shape's library with constructed schedules."""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console

from wmsched.base.console import say
from wmsched.base.interrupt import Interrupt
from wmsched.construct.named import choice_of, traversal_of
from wmsched.relax.importers.load import load_shapes
from wmsched.toolchain.resolve import meta_schedule_tvm
from wmsched.toolchain.target import Target
from wmsched.tune import folder as tuned_folder
from wmsched.tune.construct_model import Construction
from wmsched.tune.options import ModelOptions
from wmsched.tune.run import Run
from wmsched.tune.shapes.choices import refuse_for_one_shape

__all__ = ["construct_shapes"]

LINKS_AT_ONCE = 2  # while further shapes are compiled: each holds the model's weights a few times


def construct_shapes(options: ModelOptions, *, console: Console | None = None) -> Any:
    """Compile each shape of a model with constructed schedules; see `construct_model`.

    Parameters
    ----------
    options : ModelOptions
        With `variants`, which say the shapes.

    Returns
    -------
    Shaped
    """
    console = console or Console()
    tell = functools.partial(say, console)
    refuse_for_one_shape(options)
    traversal_of(options.traversal), choice_of(options.choice)  # a wrong name is told at once
    importlib.import_module("xgboost")  # before TVM, as everywhere here
    meta_schedule_tvm()
    from wmsched.relax.passes.objects import Objects
    from wmsched.tune.schedules import Schedules
    from wmsched.tune.shapes.several import owner, parts_of, run_of, write
    from wmsched.tune.shapes.tuning import distinct
    from wmsched.tune.tune_model import checked_target, settle

    target = checked_target(options)
    models = load_shapes(options.name, options.variants, options.states)
    settings, described, kept = settle(options, target, models)
    about = owner(options.out, described)
    with contextlib.ExitStack() as scopes:
        interrupt = scopes.enter_context(Interrupt())
        notes = scopes.enter_context(tuned_folder.opened(options.out, about, resume=True))
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
            interrupted=lambda: interrupt.pressed,
        )
        parts = parts_of(options.out, models, described)
        schedules = Schedules()
        made = [Construction(run_of(run, part), schedules=schedules) for part in parts]
        tasks = distinct([one.tasks() for one in made])
        tell(f"{options.name}: {len(tasks)} functions of all shapes")
        began = time.monotonic()
        schedules.of(run, tasks, neighbours=True)
        for one in made:
            one.spent = (time.monotonic() - began) / len(made)
        with ThreadPoolExecutor(LINKS_AT_ONCE) as linker:  # at its end nothing disturbs the timing
            for number, (part, one) in enumerate(zip(parts, made), start=1):
                tell(f"shape {number} of {len(parts)}: {part.label}: compiling")
                one.compile(linker, folder / f"{part.label}.so")
        for part, one in zip(parts, made):
            tell(part.label)
            part.found, part.settings, _ = one.build()
            tuned_folder.describe(part.folder, part.about | part.settings | {"constructed": True})
        about |= {**parts[0].settings, "constructed": True}
        return write(run, about, parts, tell, 0.0)
