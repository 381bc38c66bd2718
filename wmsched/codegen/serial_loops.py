"""Parallel loops whose work is done sooner than a thread is woken, on the thread that comes to them.

MetaSchedule's schedules have the outer loops of every function in parallel, be they of a hundred elements: a
step of a recurrent layer, a gate of a squeeze-and-excitation, a decoder's token. Handing work to a second
thread took 1.2 us on two cores of a Zen 3, an addition of 1024 elements 0.07, and their tanh 1.1.
"""

from __future__ import annotations

import math
from typing import Any

from wmsched.codegen.math_functions import PARTS, RULES
from wmsched.codegen.nodes import PURE, SERIAL, children, is_a, is_call, is_load, loop, tir, with_children

MOST = 16_384  # operations; two threads were as fast as one at 11 (tanh), 20 (additions) and 60 thousand
LANES = 8  # of a vector of float32, as the narrowest processors have them
CALL = 40  # operations that exp, tanh and the like come to
MATHEMATICS = {*PURE, *RULES, "pow", "sin", "cos", "tan", "atan", "exp2", "exp10", "log2", "log10", "log1p"}
CHEAP = (
    "if_then_else", "likely", "fabs", "abs", "floor", "ceil", "round", "nearbyint", "trunc", "isnan", "isinf",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right", "reinterpret",
)  # fmt: skip
NESTS = ("SeqStmt", "AttrStmt", "AllocBuffer", "DeclBuffer", "Allocate", "LetStmt")


def on_one_thread(function: Any) -> Any:
    """The same function with parallel loops of at most `MOST` operations as plain ones."""
    body = _narrowed(function.body)
    return function if body.same_as(function.body) else function.with_body(body)


def _narrowed(node: Any) -> Any:
    if isinstance(node, tir.For) and node.kind == tir.ForKind.PARALLEL and work(node) <= MOST:
        return loop(node.loop_var, node.extent, SERIAL, node.body, like=node)
    return with_children(node, _narrowed)


def work(node: Any) -> float:
    """About how many operations a statement comes to, a vector's counted once.

    Infinite where that is not known: of calls, of loops of open length.
    """
    if isinstance(node, tir.For):
        if not isinstance(node.extent, tir.IntImm):
            return math.inf
        turns = int(node.extent)
        return (math.ceil(turns / LANES) if node.kind == tir.ForKind.VECTORIZED else turns) * work(node.body)
    if isinstance(node, tir.BufferStore):
        return 1 + sum(map(_operations, (node.value, *node.indices)))
    if isinstance(node, tir.IfThenElse):
        return _operations(node.condition) + max(map(work, children(node)))
    if any(is_a(node, name) for name in NESTS):
        return sum(map(work, children(node)))
    return math.inf


def _operations(node: Any) -> float:
    if isinstance(node, (tir.IntImm, tir.FloatImm, tir.Var, tir.Ramp, tir.Broadcast)):
        return 0
    if is_load(node):
        return 1 + sum(map(_operations, node.indices))
    if is_call(node):
        name = getattr(node.op, "name", "").split(".")[-1]
        cost: float = 1 if name in CHEAP else CALL if name in MATHEMATICS else math.inf
        return cost + sum(map(_operations, node.args))
    operands = [getattr(node, name) for name in PARTS if hasattr(node, name)]
    return 1 + sum(map(_operations, operands)) if operands else math.inf
