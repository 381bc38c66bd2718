"""Vector math and loop passes in AutoScheduler's TVM: inside `vector_math`, and in local builders.

`wmsched.codegen.math_functions` and `wmsched.codegen.pipeline` hold the rules and the passes. This TVM has no
table of fast math. Our rules therefore replace its LLVM rules for good, and call them outside `vector_math`.
The loop pass joins the lowering passes of the current `PassContext` and of every context entered inside.
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

INTRINSIC_TABLE = "llvm"
INTRINSIC_ATTRIBUTE = "llvm.FLowerIntrinsic"  # the operator attribute of that table
RULE_PRIORITY = 99  # TVM's own rules have 10
LOWER_PASSES_SETTING = "tir.add_lower_pass"  # PassContext setting: pairs of a phase and a pass
PICKLED_MODULES = (  # sent by value to builder processes, which may lack this package
    hoist, nodes, pipeline, prefetch, math_functions, vectorize, vectorize_reductions, vectorize_values,
)  # fmt: skip
PASS_NAME = "wmsched.lowered"  # our pass's name
LOWER_PHASE = 1  # after buffers are flattened, before TVM changes the scheduled loops
SWITCH_NAME = "_wmsched_vector_math"  # in the tvm module, so that pickled copies of this module share it

logger = logging.getLogger(__name__)


@contextmanager
def vector_math(enabled: bool = True, *, loops: bool = True) -> Iterator[None]:
    """Compile exp, log, tanh, erf and small powers to vector code for LLVM targets inside this context.

    >>> with vector_math():
    ...     library = tvm.build(schedule, tensors, target)

    The functions are off by at most 3 units in the last place (`wmsched.codegen.math_functions`). Loops and
    sums along contiguous memory become vector code too; the sums are added in another order. Products get
    prefetches (`wmsched.codegen.prefetch`). The context nests, also with ``vector_math(False)``.

    Parameters
    ----------
    enabled : bool
        False: TVM's calls of the C library, and TVM's loops.
    loops : bool
        False: the functions only, with TVM's loops.
    """
    import tvm

    switch = tvm.__dict__.get(SWITCH_NAME)
    if switch is None:
        if not enabled:
            yield
            return
        switch = tvm.__dict__[SWITCH_NAME] = {"on": False, "loops": False}
        for name, rule in RULES.items():
            _register(tvm, f"tir.{name}", rule, switch)
        _add_to_contexts(tvm, switch)
    before = dict(switch)
    switch.update(on=enabled, loops=enabled and loops)
    try:
        with _copy_context(tvm, tvm.transform.PassContext.current()):  # entering adds the pass
            yield
    finally:
        switch.update(before)


def _add_to_contexts(tvm: Any, switch: dict[str, bool]) -> None:
    """Add `run_passes` to every `PassContext` that is entered while loops are on.

    TVM enters a copy, because the settings of an existing context cannot be extended.
    """
    kind = tvm.transform.PassContext
    loops = tvm.tir.transform.prim_func_pass(
        lambda function, module, context: run_passes(function) if switch["loops"] else function,
        opt_level=0,
        name=PASS_NAME,
    )
    enter, leave = kind.__enter__, kind.__exit__
    copies: list[tuple[Any, Any]] = []

    @functools.wraps(enter)
    def enter_with_pass(self: Any) -> Any:
        passes = list(dict(self.config.items()).get(LOWER_PASSES_SETTING, ()))
        if not switch["loops"] or any(pair[1].info.name == PASS_NAME for pair in passes):
            return enter(self)
        copies.append(
            (self, _copy_context(tvm, self, {LOWER_PASSES_SETTING: [*passes, [LOWER_PHASE, loops]]}))
        )
        return enter(copies[-1][1])

    @functools.wraps(leave)
    def leave_copy(self: Any, *error: Any) -> Any:
        place = next((k for k in reversed(range(len(copies))) if copies[k][0] is self), None)
        return leave(self if place is None else copies.pop(place)[1], *error)

    kind.__enter__, kind.__exit__ = enter_with_pass, leave_copy


def _copy_context(tvm: Any, context: Any, settings: Mapping[str, Any] | None = None) -> Any:
    """Return a copy of a context, with further settings."""
    return tvm.transform.PassContext(
        opt_level=context.opt_level,
        required_pass=list(context.required_pass),
        disabled_pass=list(context.disabled_pass),
        instruments=list(context.instruments),
        config={**dict(context.config.items()), **(settings or {})},
    )


def _register(tvm: Any, name: str, rule: Callable[[Any], Any], switch: dict[str, bool]) -> None:
    original = tvm.ir.Op.get(name).get_attr(INTRINSIC_ATTRIBUTE)

    def lower(call: Any) -> Any:
        found = rule(call) if switch["on"] else call
        # an unchanged call goes to TVM's LLVM rule, or else to TVM's rule for all targets
        return original(call) if original is not None and found.same_as(call) else found

    tvm.ir.register_intrin_lowering(name, INTRINSIC_TABLE, f=lower, level=RULE_PRIORITY)


@contextmanager
def builders_with_vector_math(enabled: bool = True) -> Iterator[None]:
    """Have local builders compile their candidates inside `vector_math`.

    A TVM whose local builder differs from 0.16's keeps it unchanged; the log says so.
    """
    module = autoscheduler_tvm().auto_scheduler.measure
    original = getattr(module, "local_build_worker", None)
    # A TVM that builds in threads of this process would have `_build` call itself.
    if not enabled or original is None or not hasattr(module, "PopenPoolExecutor"):
        if enabled:
            logger.info("this TVM's local builder is not known: its candidates call the C library")
        yield
        return
    import cloudpickle  # TVM sends work with it

    # by value: a builder's process may lack this package
    for each in (*PICKLED_MODULES, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(each)
    module.local_build_worker = _build
    try:
        yield
    finally:
        module.local_build_worker = original


def _build(asked: Any) -> Any:
    """Run TVM's `local_build_worker` inside `vector_math`, in a builder's process."""
    from tvm.auto_scheduler import measure

    with vector_math():
        return measure.local_build_worker(asked)
