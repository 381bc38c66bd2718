"""`vector_arithmetic` and `lowering` in AutoScheduler's TVM: within `vector_math`, and for local builders.

That TVM has no table of fast mathematics, so the rules take the place of its own for LLVM targets, once and
for all, and pass on to them wherever `vector_math` is not in force. The loops' pass is among those that its
`PassContext` adds to the lowering: to the one in force, and to each that is entered within.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wmsched.toolchain.resolve import autoscheduler_tvm

autoscheduler_tvm()  # before those below import whichever TVM Python finds first

from wmsched.codegen import (  # noqa: E402
    hoist,
    math_functions,
    nodes,
    pipeline,
    prefetch,
    vectorize,
    vectorize_reductions,
    vectorize_values,
)
from wmsched.codegen.math_functions import RULES  # noqa: E402
from wmsched.codegen.pipeline import run_passes  # noqa: E402

TABLE = "llvm"
ATTRIBUTE = "llvm.FLowerIntrinsic"  # TVM's name for that table
LEVEL = 99  # TVM's own have 10
PASSES = "tir.add_lower_pass"  # TVM's setting: pairs of a phase and a pass
CARRIED = (  # what a builder's process gets as code
    hoist, nodes, pipeline, prefetch, math_functions, vectorize, vectorize_reductions, vectorize_values,
)  # fmt: skip
LOOPS = "wmsched.lowered"  # our pass's name
PHASE = 1  # buffers are flat, loops as they were scheduled
PLACE = "_wmsched_vector_math"  # in the tvm module: copies of this one, as builders get them, share it

logger = logging.getLogger(__name__)


@contextmanager
def vector_math(enabled: bool = True, *, loops: bool = True) -> Iterator[None]:
    """What this process compiles for LLVM targets within has exp, log, tanh, erf and small powers in vectors.

    ``with vector_math(): library = tvm.build(schedule, tensors, target)``. They are at most 3 units in the
    last place off; see `vector_arithmetic`. So are sums along contiguous memory, in another order, and plain
    loops (`vector_loops`), and what products read next is fetched ahead (`prefetches`). Nests, also with
    ``vector_math(False)``.

    Parameters
    ----------
    enabled : bool
        False: TVM's calls of the C library within, and loops as it makes them.
    loops : bool
        False: loops as TVM makes them, the functions alone.
    """
    import tvm

    switch = tvm.__dict__.get(PLACE)
    if switch is None:
        if not enabled:
            yield
            return
        switch = tvm.__dict__[PLACE] = {"on": False, "loops": False}
        for name, rule in RULES.items():
            _register(tvm, f"tir.{name}", rule, switch)
        _add_to_contexts(tvm, switch)
    before = dict(switch)
    switch.update(on=enabled, loops=enabled and loops)
    try:
        with _anew(tvm, tvm.transform.PassContext.current()):  # which is entered as one that has the pass
            yield
    finally:
        switch.update(before)


def _add_to_contexts(tvm: Any, switch: dict[str, bool]) -> None:
    """What is lowered in a `PassContext` that is entered where loops are on goes through `run_passes` too.

    A copy is entered, for the settings of one that is made already cannot be added to.
    """
    kind = tvm.transform.PassContext
    loops = tvm.tir.transform.prim_func_pass(
        lambda function, module, context: run_passes(function) if switch["loops"] else function,
        opt_level=0,
        name=LOOPS,
    )
    enter, leave = kind.__enter__, kind.__exit__
    copies: list[tuple[Any, Any]] = []

    @functools.wraps(enter)
    def entered(self: Any) -> Any:
        passes = list(dict(self.config.items()).get(PASSES, ()))
        if not switch["loops"] or any(pair[1].info.name == LOOPS for pair in passes):
            return enter(self)
        copies.append((self, _anew(tvm, self, {PASSES: [*passes, [PHASE, loops]]})))
        return enter(copies[-1][1])

    @functools.wraps(leave)
    def left(self: Any, *error: Any) -> Any:
        place = next((k for k in reversed(range(len(copies))) if copies[k][0] is self), None)
        return leave(self if place is None else copies.pop(place)[1], *error)

    kind.__enter__, kind.__exit__ = entered, left


def _anew(tvm: Any, context: Any, settings: Mapping[str, Any] | None = None) -> Any:
    """A copy of a context, with further settings."""
    return tvm.transform.PassContext(
        opt_level=context.opt_level,
        required_pass=list(context.required_pass),
        disabled_pass=list(context.disabled_pass),
        instruments=list(context.instruments),
        config={**dict(context.config.items()), **(settings or {})},
    )


def _register(tvm: Any, name: str, rule: Callable[[Any], Any], switch: dict[str, bool]) -> None:
    original = tvm.ir.Op.get(name).get_attr(ATTRIBUTE)

    def lower(call: Any) -> Any:
        found = rule(call) if switch["on"] else call
        # a call that stays goes to TVM's rule here, or to that of its table for all targets
        return original(call) if original is not None and found.same_as(call) else found

    tvm.ir.register_intrin_lowering(name, TABLE, f=lower, level=LEVEL)


@contextmanager
def builders_with_vector_math(enabled: bool = True) -> Iterator[None]:
    """Local builders compile their candidates as within `vector_math`.

    In a TVM whose local builder works otherwise than 0.16's they stay as they are, with a word in the log.
    """
    module = autoscheduler_tvm().auto_scheduler.measure
    original = getattr(module, "local_build_worker", None)
    # Threads of this process, as some TVMs have, would find `_build` where it looks for TVM's own.
    if not enabled or original is None or not hasattr(module, "PopenPoolExecutor"):
        if enabled:
            logger.info("this TVM's local builder is not known: its candidates call the C library")
        yield
        return
    import cloudpickle  # TVM's, which sends with it

    # a builder's process gets the code, not a name to import: it may lack this package
    for each in (*CARRIED, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(each)
    module.local_build_worker = _build
    try:
        yield
    finally:
        module.local_build_worker = original


def _build(asked: Any) -> Any:
    """In a builder's process: TVM's `local_build_worker`, within `vector_math`."""
    from tvm.auto_scheduler import measure

    with vector_math():
        return measure.local_build_worker(asked)
