"""Run small parallel loops serially: waking a second thread takes longer than their work.

MetaSchedule makes the outer loops of every function parallel, even for a hundred elements: a recurrent step,
a squeeze-and-excitation gate, a decoder's token. Starting a second thread takes 1.2 us on two cores of a Zen
3. Adding 1024 elements takes 0.07 us, and their tanh 1.1 us.
"""

from __future__ import annotations

import math
from typing import Any

from wmsched.codegen.math_functions import PARTS, RULES
from wmsched.codegen.nodes import PURE, SERIAL, children, is_a, is_call, is_load, loop, tir, with_children

MAX_SERIAL_OPERATIONS = 16_384  # two threads broke even at 11 (tanh), 20 (additions) and 60 thousand
LANES = 8  # float32 of a vector on the narrowest CPUs (AVX2)
CALL_OPERATIONS = 40  # operations of a call of exp, tanh and the like
MATH_CALLS = {*PURE, *RULES, "pow", "sin", "cos", "tan", "atan", "exp2", "exp10", "log2", "log10", "log1p"}
CHEAP_CALLS = (
    "if_then_else", "likely", "fabs", "abs", "floor", "ceil", "round", "nearbyint", "trunc", "isnan", "isinf",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right", "reinterpret",
)  # fmt: skip
KNOWN_STATEMENTS = ("SeqStmt", "AttrStmt", "AllocBuffer", "DeclBuffer", "Allocate", "LetStmt")


def on_one_thread(function: Any) -> Any:
    """Return the function with parallel loops of at most `MAX_SERIAL_OPERATIONS` made serial."""
    body = _serialize(function.body)
    return function if body.same_as(function.body) else function.with_body(body)


def _serialize(node: Any) -> Any:
    if (
        isinstance(node, tir.For)
        and node.kind == tir.ForKind.PARALLEL
        and work(node) <= MAX_SERIAL_OPERATIONS
    ):
        return loop(node.loop_var, node.extent, SERIAL, node.body, like=node)
    return with_children(node, _serialize)


def work(node: Any) -> float:
    """Return an estimate of a statement's operations; a vector operation counts once.

    Infinite where it is unknown: unknown calls, loops of variable extent.
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
    if any(is_a(node, name) for name in KNOWN_STATEMENTS):
        return sum(map(work, children(node)))
    return math.inf


def _operations(node: Any) -> float:
    if isinstance(node, (tir.IntImm, tir.FloatImm, tir.Var, tir.Ramp, tir.Broadcast)):
        return 0
    if is_load(node):
        return 1 + sum(map(_operations, node.indices))
    if is_call(node):
        name = getattr(node.op, "name", "").split(".")[-1]
        cost: float = 1 if name in CHEAP_CALLS else CALL_OPERATIONS if name in MATH_CALLS else math.inf
        return cost + sum(map(_operations, node.args))
    operands = [getattr(node, name) for name in PARTS if hasattr(node, name)]
    return 1 + sum(map(_operations, operands)) if operands else math.inf
