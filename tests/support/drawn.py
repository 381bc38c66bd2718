"""Searches in the model, begun on small programs."""

from __future__ import annotations

import logging

from tvm.s_tir import meta_schedule as ms

from wmsched.metaschedule.design_space import DrawnSpaces
from wmsched.metaschedule.search_strategy import drawn_search
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.search.evolution import Evolution

SMALL = Evolution(population=96, generations=2)


def context(func, target, strategy, *, seed=3):
    quiet = logging.getLogger("tests.drawn_search")
    quiet.setLevel(logging.CRITICAL)
    return ms.TuneContext(
        func,
        target=target,
        space_generator="post-order-apply",
        search_strategy=strategy,
        rand_state=seed,
        num_threads=1,
        logger=quiet,
        task_name="task",
    )


def begun(func, target, model, *, count=8, trials=100, database=None, **how):
    ctx = context(func, target, drawn_search(model, evolution=SMALL, **how))
    started(ctx, model, count=count, trials=trials, database=database)
    return ctx, ctx.search_strategy


def started(ctx, model, *, count, trials=100, database=None):
    ctx.pre_tuning(
        max_trials=trials,
        num_trials_per_iter=count,
        design_spaces=ctx.generate_design_space(),
        database=database or ms.database.MemoryDatabase(),
        cost_model=model,
    )
    return ctx


def few(designs):
    """TVM's search, small."""
    return ms.search_strategy.EvolutionarySearch(population_size=32, init_min_unmeasured=4)


def draws_of(ctx):
    """Of each of a task's spaces."""
    return DrawnSpaces(ctx, ctx.generate_design_space()).draws


def rows_of(spaces, candidates):
    """(space, row) of each candidate; every one must be of a space."""
    found = []
    for candidate in candidates:
        trace = trace_json(candidate.sch.trace)
        (which,) = (k for k, space in enumerate(spaces) if space.row_of(trace) is not None)
        found.append((which, spaces[which].row_of(trace)))
    return found
