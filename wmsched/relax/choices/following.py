"""What follows a convolution in a graph and can be its kernel's epilogue."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm
from tvm import relax

from wmsched.relax.choices.epilogue import (
    BINARY,
    COLUMN,
    MAX_STEPS,
    NUMBER,
    STEP,
    SUMS,
    TENSOR,
    UNARY,
    Epilogue,
    Operand,
    Step,
)
from wmsched.relax.passes.fold_constants import array_of
from wmsched.relax.passes.wide_fusion import shape_of

__all__ = ["Followed", "followed"]


class Graph(Protocol):
    """What is read of `wmsched.relax.choices.rewrite.Rewriter`."""

    @property
    def bindings(self) -> Sequence[tuple[Any, Any]]:
        """Variables and what they are bound to, in order."""

    @property
    def value(self) -> Mapping[Any, Any]:
        """What a variable is bound to."""

    @property
    def readers(self) -> Mapping[Any, Sequence[Any]]:
        """Variables of what reads a variable; None stands for the function's result."""


@dataclass(frozen=True)
class Followed:
    """An epilogue in its graph.

    Parameters
    ----------
    last : Var
        What the kernel computes; the convolution itself where nothing follows.
    inside : frozenset of Var
        What is no longer computed for itself.
    arguments : tuple of Relax expressions
        Of `epilogue.arguments`; variables are of the old function.
    """

    last: Any
    inside: frozenset[Any] = frozenset()
    epilogue: Epilogue = field(default_factory=Epilogue)
    arguments: tuple[Any, ...] = ()


def followed(
    graph: Graph, variable: Any, taken: Collection[Any] = (), ended: Collection[Any] = ()
) -> Followed:
    """Return the longest epilogue of a convolution whose values, but for the last, nothing else reads.

    Parameters
    ----------
    taken : collection of Var
        What is another kernel's already.
    ended : collection of Var
        After which nothing is to be fused.
    """
    order = {each: place for place, (each, _) in enumerate(graph.bindings)}
    found, steps = Followed(variable), _Steps(variable, shape_of(graph.value[variable]))
    newest = variable
    while len(steps.done) < MAX_STEPS and newest not in ended:
        readers = {reader for each in steps.operand for reader in graph.readers.get(each, ())}
        pending = readers - steps.operand.keys()
        if None in pending or not pending:  # it is a result of the function, or nobody's
            break
        newest = min(pending, key=order.__getitem__)
        if newest in taken or not steps.add(newest, graph.value[newest]):
            break
        inside = steps.operand.keys() - {newest}
        if all(reader in steps.operand for each in inside for reader in graph.readers[each]):
            epilogue = Epilogue(tuple(steps.done), tuple(steps.kinds))
            found = Followed(newest, frozenset(inside), epilogue, tuple(steps.arguments))
    return found


class _Steps:
    """Operators that have been taken into an epilogue."""

    def __init__(self, variable: Any, shape: tuple[int, ...] | None) -> None:
        self.shape = shape
        self.operand: dict[Any, Operand] = {variable: Operand(SUMS)}  # of each variable inside
        self.done: list[Step] = []
        self.kinds: list[str] = []
        self.arguments: list[Any] = []

    def add(self, variable: Any, value: Any) -> bool:
        """Take an operator; whether a kernel can compute it."""
        name = str(value.op.name) if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) else ""
        if name not in UNARY and name not in BINARY:
            return False
        if shape_of(value) != self.shape or str(value.ty.dtype) != "float32":
            return False
        operands = []
        for argument in value.args:
            operand = self._operand(argument)
            if operand is None:
                return False
            operands.append(operand)
        self.operand[variable] = Operand(STEP, len(self.done))
        self.done.append(Step(name, tuple(operands)))
        return True

    def _operand(self, argument: Any) -> Operand | None:
        if isinstance(argument, relax.Var) and argument in self.operand:
            return self.operand[argument]
        shape = shape_of(argument)
        if shape is None or str(argument.ty.dtype) != "float32":
            return None
        if isinstance(argument, tvm.ir.Constant):
            numbers = array_of(argument).reshape(-1)
            if len(numbers) == 1:
                return Operand(NUMBER, float(numbers[0]))
            if self.shape is None or shape[-1:] != self.shape[-1:] or len(numbers) != self.shape[-1]:
                return None
            return self._argument(COLUMN, relax.const(numbers))
        if not isinstance(argument, relax.Var) or shape != self.shape:
            return None
        return self._argument(TENSOR, argument)

    def _argument(self, kind: str, argument: Any) -> Operand:
        if kind == TENSOR:
            for k, known in enumerate(self.arguments):
                if known is argument or known.same_as(argument):
                    return Operand(TENSOR, k)
        self.kinds.append(kind)
        self.arguments.append(argument)
        return Operand(kind, len(self.arguments) - 1)
