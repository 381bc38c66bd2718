"""`vector_arithmetic` in MetaSchedule's TVM: in its table of fast mathematics for LLVM.

A build reads that table only with `CONFIG` in its `PassContext`:
``with tvm.transform.PassContext(config=CONFIG)``.
"""

from __future__ import annotations

from tvm import tirx

from wmsched.backends.vector_arithmetic import RULES

CONFIG = {"tirx.enable_fast_math": True}
TABLE = "llvm.fastmath"  # TVM's name for rules of LLVM targets under that setting
LEVEL = 11  # above TVM's own, which has none there today


def register() -> None:
    """Put the rules into TVM's table; done once, on import."""
    for name, rule in RULES.items():
        tirx.op.register_intrin_lowering(f"tirx.{name}", TABLE, f=rule, level=LEVEL)


register()
