"""`vector_arithmetic` and `lowering` in MetaSchedule's TVM.

The first is in TVM's table of fast mathematics for LLVM, the second goes before the pass that makes vectors
of loops, which TVM's pipelines look up by its name. A build does either with `CONFIG` in its `PassContext`,
``with tvm.transform.PassContext(config=CONFIG)``, and to functions that `with_vector_math` has marked
whatever the context is.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import tirx

from wmsched.codegen.math_functions import RULES
from wmsched.codegen.pipeline import run_passes

SETTING = "tirx.enable_fast_math"
CONFIG = {SETTING: True}
MARK = "wmsched.vector_math"  # attribute of a function
TABLE = "llvm.fastmath"  # TVM's name for rules of LLVM targets under that setting
LEVEL = 11  # above TVM's own, which has none there today


def with_vector_math(module: Any) -> Any:
    """A module whose functions in TensorIR have their mathematics and loops in vectors, whoever builds it.

    In a process that has not imported this the mark means nothing.
    """
    found = module.clone()
    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            found[name] = function.with_attr(MARK, 1)
    return found


def _is_marked(function: Any) -> bool:
    return isinstance(function, tirx.PrimFunc) and function.attrs is not None and MARK in function.attrs


def register() -> None:
    """Put the rules into TVM's table, and passes before its own; done once, on import."""
    for name, rule in RULES.items():
        tirx.op.register_intrin_lowering(f"tirx.{name}", TABLE, f=rule, level=LEVEL)
    if getattr(tirx.transform.VectorizeLoop, "wmsched", False):  # a module that is imported again
        return
    _replace("VectorizeLoop", _in_vectors)
    _replace("LowerIntrin", _with_the_table)


def _replace(name: str, around: Any) -> None:
    original = getattr(tirx.transform, name)

    @functools.wraps(original)
    def replaced(*args: Any, **named: Any) -> Any:
        return around(original(*args, **named))

    replaced.wmsched = True  # type: ignore[attr-defined]
    setattr(tirx.transform, name, replaced)


def _in_vectors(vectorize: Any) -> Any:
    """TVM's pass that makes vectors of loops, after ours."""

    def lower(function: Any, module: Any, context: Any) -> Any:
        return (
            run_passes(function) if context.config.get(SETTING, False) or _is_marked(function) else function
        )

    ahead = tirx.transform.prim_func_pass(lower, opt_level=0, name="wmsched.lowered")
    return tvm.transform.Sequential([ahead, vectorize])


def _with_the_table(lower: Any) -> Any:
    """TVM's pass that lowers calls of mathematics, by the table in functions that are marked."""

    @tvm.transform.module_pass(opt_level=0, name="wmsched.LowerIntrin")
    def run(module: Any, context: Any) -> Any:
        ours = {name: each for name, each in module.functions.items() if _is_marked(each)}
        if not ours or context.config.get(SETTING, False):
            return lower(module)
        config = {str(name): value for name, value in context.config.items()}
        with tvm.transform.PassContext(opt_level=context.opt_level, config=config | CONFIG):
            done = lower(tvm.IRModule(ours, attrs=module.attrs))
        others = {name: each for name, each in module.functions.items() if name not in ours}
        found = lower(tvm.IRModule(others, attrs=module.attrs, global_infos=module.global_infos))
        found.update(done)
        return found

    return run


register()
