"""Install `math_functions` and `pipeline` in MetaSchedule's TVM.

The math functions go into TVM's fast-math table for LLVM, the pipeline in front of its pass VectorizeLoop.
TVM's build pipelines look both passes up by name. They apply in builds under `CONFIG`, ``with
tvm.transform.PassContext(config=CONFIG)``, and to functions marked by `with_vector_math`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from wmsched.base.wrapping import wrap_results
from wmsched.codegen.math_functions import RULES
from wmsched.codegen.pipeline import run_passes

SETTING = "tirx.enable_fast_math"
CONFIG = {SETTING: True}
MARK = "wmsched.vector_math"  # attribute of marked functions
TABLE = "llvm.fastmath"  # TVM's table of rules for LLVM targets under SETTING
LEVEL = 11  # priority over rules of TVM's own, which has none in this table today


def with_vector_math(module: Any) -> Any:
    """Return the module with its TensorIR functions marked, so that any build applies this module's passes.

    The mark has no effect in a process that has not imported this module.
    """
    found = module.clone()
    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            found[name] = function.with_attr(MARK, 1)
    return found


def _is_marked(function: Any) -> bool:
    return isinstance(function, tirx.PrimFunc) and function.attrs is not None and MARK in function.attrs


def register() -> None:
    """Register the rules and wrap TVM's passes; runs once, on import."""
    for name, rule in RULES.items():
        tirx.op.register_intrin_lowering(f"tirx.{name}", TABLE, f=rule, level=LEVEL)
    wrap_results(tirx.transform, "VectorizeLoop", _run_before_vectorize)
    wrap_results(tirx.transform, "LowerIntrin", _lower_by_table)


def _run_before_vectorize(vectorize: Any) -> Any:
    """Return TVM's vectorise pass preceded by the pipeline."""

    def lower(function: Any, module: Any, context: Any) -> Any:
        return (
            run_passes(function) if context.config.get(SETTING, False) or _is_marked(function) else function
        )

    ahead = tirx.transform.prim_func_pass(lower, opt_level=0, name="wmsched.lowered")
    return tvm.transform.Sequential([ahead, vectorize])


def _lower_by_table(lower: Any) -> Any:
    """Return TVM's intrinsic lowering with the fast-math table for marked functions."""

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
