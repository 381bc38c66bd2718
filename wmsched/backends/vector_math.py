"""`vector_arithmetic` and `lowering` in MetaSchedule's TVM.

The first is in TVM's table of fast mathematics for LLVM, the second goes before the pass that makes vectors
of loops, which TVM's pipelines look up by its name. A build does either only with `CONFIG` in its
`PassContext`: ``with tvm.transform.PassContext(config=CONFIG)``.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import tirx

from wmsched.backends.lowering import lowered
from wmsched.backends.vector_arithmetic import RULES

SETTING = "tirx.enable_fast_math"
CONFIG = {SETTING: True}
TABLE = "llvm.fastmath"  # TVM's name for rules of LLVM targets under that setting
LEVEL = 11  # above TVM's own, which has none there today


def register() -> None:
    """Put the rules into TVM's table, and the loops' pass before its own; done once, on import."""
    for name, rule in RULES.items():
        tirx.op.register_intrin_lowering(f"tirx.{name}", TABLE, f=rule, level=LEVEL)
    original = tirx.transform.VectorizeLoop
    if getattr(original, "wmsched", False):  # a module that is imported again
        return

    def lower(function: Any, module: Any, context: Any) -> Any:
        return lowered(function) if context.config.get(SETTING, False) else function

    ahead = tirx.transform.prim_func_pass(lower, opt_level=0, name="wmsched.lowered")

    @functools.wraps(original)
    def vectorize(*args: Any, **named: Any) -> Any:
        return tvm.transform.Sequential([ahead, original(*args, **named)])

    vectorize.wmsched = True  # type: ignore[attr-defined]
    tirx.transform.VectorizeLoop = vectorize


register()
