"""Epilogue of a convolution: the elementwise operators after it, computed by its kernel before it stores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from wmsched.relax.int8.finish import span
from wmsched.relax.int8.product import named

MAX_STEPS = 16
SUMS, NUMBER, COLUMN, TENSOR, STEP = "sums", "number", "column", "tensor", "step"


def _gelu_tanh(x: Any, number: Callable[[float], Any]) -> Any:
    inner = x * number(math.sqrt(2 / math.pi)) * (number(1.0) + x * x * number(0.044715))
    return x * (number(0.5) + T.tanh(inner) * number(0.5))


#: By operator of one operand: (value, a function that makes a number a vector) to a value.
UNARY: Mapping[str, Callable[[Any, Callable[[float], Any]], Any]] = {
    "relax.nn.relu": lambda x, number: T.max(number(0.0), x),  # NaN stays NaN in this order
    "relax.nn.silu": lambda x, _: x * T.sigmoid(x),
    "relax.sigmoid": lambda x, _: T.sigmoid(x),
    "relax.tanh": lambda x, _: T.tanh(x),
    "relax.erf": lambda x, _: T.erf(x),
    "relax.nn.gelu": lambda x, number: x * (number(0.5) + T.erf(x * number(math.sqrt(0.5))) * number(0.5)),
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.negative": lambda x, number: x * number(-1.0),
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
    "relax.divide": lambda a, b: a / b,
    "relax.maximum": lambda a, b: T.max(a, b),
    "relax.minimum": lambda a, b: T.min(a, b),
}
TWICE = ("relax.nn.silu", "relax.nn.gelu", "relax.nn.gelu_tanh")  # they read their operand more than once
TIMES = Counter(dict.fromkeys((*UNARY, *BINARY), 1) | dict.fromkeys(TWICE, 2))


@dataclass(frozen=True)
class Operand:
    """What an operator reads.

    Parameters
    ----------
    kind : str
        The sums, a step's value, a number, one number for each channel, or a tensor of the result's shape.
    which : float
        The number, or the step's or the argument's place; 0 of the sums.
    """

    kind: str
    which: float = 0


@dataclass(frozen=True)
class Step:
    """One operator, by Relax's name."""

    operator: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Ending:
    """One operator of a chain, on the value before and another operand.

    Parameters
    ----------
    kind, which
        Of the other operand, as of `Operand`.
    swapped : bool
        Whether the value is the second operand.
    """

    operator: str
    kind: str
    which: float
    swapped: bool = False


@dataclass(frozen=True)
class Epilogue:
    """The operators in order; the last one's value is stored. Without any the sums are.

    Parameters
    ----------
    arguments : tuple of str
        Kinds of the further arguments that a kernel takes, COLUMN or TENSOR.
    """

    steps: tuple[Step, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Return the operators by name, as reports have them."""
        return [step.operator.rpartition(".")[2] for step in self.steps]

    def chain(self) -> tuple[Ending, ...] | None:
        """Return the operators as a chain, if each reads the one before once and computes no function."""
        found = []
        for k, step in enumerate(self.steps):
            before = Operand(STEP, k - 1) if k else Operand(SUMS)
            if step.operator == "relax.nn.relu":
                step = Step("relax.maximum", (Operand(NUMBER, 0.0), *step.operands))
            if step.operator not in BINARY or step.operands.count(before) != 1:
                return None
            swapped = step.operands[1] == before
            other = step.operands[0] if swapped else step.operands[1]
            if other.kind not in (NUMBER, COLUMN, TENSOR):
                return None
            found.append(Ending(step.operator, other.kind, other.which, swapped))
        return tuple(found)

    def wanted(self, result: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return the further arguments of a kernel: name to (shape, type)."""
        shapes = {COLUMN: result[-1:], TENSOR: result}
        return {f"operand{k}": (shapes[kind], "float32") for k, kind in enumerate(self.arguments)}

    def store(self, flat: Mapping[str, Any], sums: Any, lanes: int, channel: Any, place: Any) -> None:
        """Emit TIR that stores the results of `lanes` sums.

        Parameters
        ----------
        flat : mapping of str to flat buffer
            A kernel's arguments, `result` among them.
        channel, place
            Index of the first channel, and of the first result.
        """

        def number(value: float) -> Any:
            return T.broadcast(T.float32(value), lanes) if lanes > 1 else T.float32(value)

        def kept(value: Any, name: str) -> Any:
            """Return a value that is computed once, wherever it is read."""
            buffer = named(f"{name}_{lanes}", T.alloc_buffer((lanes,), "float32"))
            T.buffer_store(buffer, value, [span(0, lanes)])
            return buffer.vload([0], kind)

        def read(operand: Operand) -> Any:
            if operand.kind == NUMBER:
                return number(operand.which)
            if operand.kind == STEP:
                return values[int(operand.which)]
            if operand.kind == SUMS:
                return sums
            at = channel if operand.kind == COLUMN else place
            return flat[f"operand{int(operand.which)}"].vload([at], kind)

        kind = f"float32x{lanes}" if lanes > 1 else "float32"
        reads = Counter(operand for step in self.steps for operand in step.operands * TIMES[step.operator])
        if reads[Operand(SUMS)] > 1:
            sums = kept(sums, "sums")
        values: list[Any] = []
        for k, step in enumerate(self.steps):
            operands = [read(operand) for operand in step.operands]
            if step.operator in UNARY:
                value = UNARY[step.operator](operands[0], number)
            else:
                value = BINARY[step.operator](operands[0], operands[1])
            values.append(kept(value, f"step{k}") if reads[Operand(STEP, k)] > 1 else value)
        T.buffer_store(flat["result"], values[-1] if values else sums, [span(place, lanes)])
