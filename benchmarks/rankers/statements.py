"""TensorIR text -> the numbers of its statements: what tokens of a small encoder do not carry.

Sizes are digits to a tokenizer, and an embedding of tokens does not hold them: E's state vector tells the
sketch of a program and not its tiles. Here every store of the program is a row: the loops around it from the
innermost out, each with its extent, its kind, the steps it takes through each tensor, and what it touches,
all on logarithmic scales. Nothing is lowered and nothing is looked up but the text.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wmsched.model.tokenizer import canonical_text

LOOPS = 10  # innermost loops with columns of their own; the last stands for all further out
ACCESSES = 4  # the store and the largest tensors that it reads
MOST = 12  # statements kept of a program, those that run most often
LINE = 16  # elements of a vector, or of a cache line
_DEEPEST = 40  # of an index expression

_OPS = ("exp", "tanh", "sqrt", "erf", "max(", "min(", "if_then_else", "Select", "/", " - ", " * ", "fabs",
        "pow", "log", "sigmoid")  # fmt: skip
_LOOP_COLUMNS = 8 + 4 * ACCESSES + 2 + 2 * ACCESSES
WIDTH = LOOPS * _LOOP_COLUMNS + 9 + ACCESSES + len(_OPS) + 1
"""C, columns of a statement."""

_FOR = re.compile(r"^for ((?:\w+=\S+ )*\w+=\S+?)(?: (\w+(?:\.\w)?))?:$")
_UNROLL = re.compile(r"^pragma auto_unroll_max_step (\d+)")
_BUFFER = re.compile(r"(\w+)(?:: | = )Buffer\(\(([\d, ]*)\)")
_STORE = re.compile(r" (\+=|\*=|=) ")
_OPEN = re.compile(r"(\w+)\[")

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Loop:
    """One loop around a statement: its extent, its kind ("" serial) and its step through each access."""

    extent: int
    kind: str
    strides: tuple[float, ...]


@dataclass(frozen=True)
class Statement:
    """A store: loops from the innermost out, the accesses' tensor sizes (the store's own first)."""

    operator: str  # "=", "+=", "*=", or "max=" for another reduction
    text: str  # what is stored
    unroll: int
    reads: int
    sizes: tuple[int, ...]
    loops: tuple[Loop, ...]


def statement_rows(text: str) -> Floats:
    """The statements of a program in its order, float32 [S, WIDTH], 1 <= S <= MOST.

    A text without a store (an empty one, an action) is one row of zeros.
    """
    found = [(_row(statement), _trips(statement)) for statement in statements(text)]
    kept = sorted(sorted(range(len(found)), key=lambda n: -found[n][1])[:MOST])
    return np.stack([found[n][0] for n in kept]) if kept else np.zeros((1, WIDTH), np.float32)


def statements(text: str) -> list[Statement]:
    """Read the stores of a program, canonical or as TVM prints it."""
    shapes: dict[str, tuple[int, ...]] = {}
    around: list[tuple[int, list[tuple[str, int, str]], int]] = []  # indentation, its loops, unroll limit
    found = []
    for line in canonical_text(text).split("\n"):
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        while around and around[-1][0] >= indent:
            around.pop()
        for buffer in _BUFFER.finditer(body):
            shapes[buffer[1]] = tuple(int(n[:9]) for n in buffer[2].split(",") if n.strip())
        if loop := _FOR.match(body):
            around.append((indent, _loops(loop), 0))
        elif unroll := _UNROLL.match(body):
            around.append((indent, [], int(unroll[1][:9])))
        elif "[" in body and not body.startswith(("def ", "realize(")):
            parts = _STORE.split(body, maxsplit=1)
            if len(parts) == 3:
                nest = [loop for _, loops, _ in around for loop in loops]
                limit = max((limit for _, _, limit in around), default=0)
                store, operator, value = parts
                found.append(_statement(store, operator, value, nest, limit, shapes))
    return [statement for statement in found if statement is not None]


def _loops(match: re.Match[str]) -> list[tuple[str, int, str]]:
    names = [part.split("=", 1) for part in match[1].split(" ")]
    sizes = [int(size[:9]) if size.isdecimal() else 1 for _, size in names]
    kinds = [""] * (len(names) - 1) + [match[2] or ""]  # of a grid only the innermost can have one
    return [(name, size, kind) for (name, _), size, kind in zip(names, sizes, kinds)]


def _statement(
    store: str,
    operator: str,
    value: str,
    nest: list[tuple[str, int, str]],
    unroll: int,
    shapes: dict[str, tuple[int, ...]],
) -> Statement | None:
    target = _accesses(store)
    if not target:
        return None
    reads = list(dict.fromkeys(_accesses(value)))
    if operator == "=" and target[0] in reads:  # C[i] = max(C[i], x)
        operator = "max="
        reads.remove(target[0])
    reads.sort(key=lambda access: -math.prod(shapes.get(access[0], ())))
    accesses = [target[0], *reads[: ACCESSES - 1]]
    # one evaluation for all: everything at 0, then each loop at its second and at its last turn
    place = {name: np.zeros(1 + 2 * len(nest)) for name, _, _ in nest}
    for n, (name, extent, _) in enumerate(nest):
        place[name][1 + 2 * n : 3 + 2 * n] = min(1, extent - 1), extent - 1
    steps = []
    for name, index in accesses:
        at = _address(index, shapes.get(name, ()), place)
        near, far = np.abs(at[1::2] - at[0]), np.abs(at[2::2] - at[0])
        turns = np.maximum([extent - 1 for _, extent, _ in nest], 1)
        steps.append(np.where(near > 0, near, far / turns))  # a division can hide the first turns
    loops = tuple(
        Loop(extent, kind, tuple(float(step[n]) for step in steps))
        for n, (_, extent, kind) in enumerate(nest)
    )
    sizes = tuple(math.prod(shapes.get(name, ())) for name, _ in accesses)
    return Statement(operator, value, unroll, len(reads), sizes, loops[::-1])


def _accesses(text: str) -> list[tuple[str, str]]:
    """(tensor, index text) of each access, those within an index too."""
    found = []
    for match in _OPEN.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        found.append((match[1], text[match.end() : end - 1]))
    return found


def _address(
    index: str, shape: tuple[int, ...], place: dict[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    at = np.zeros(len(next(iter(place.values()), np.zeros(1))))
    tree = _parsed(index)
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    for n, part in enumerate(parts):
        at = at * (shape[n] if n < len(shape) else 1) + _value(part, place, 0)
    return at


@lru_cache(maxsize=50_000)
def _parsed(index: str) -> ast.expr:
    try:
        return ast.parse(index.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Constant(0)  # an index that cannot be read moves nothing


def _value(node: ast.expr, place: dict[str, NDArray[np.float64]], depth: int) -> NDArray[np.float64] | float:
    """An index expression of integers and loop variables; whatever else stands in it counts as 0."""
    if isinstance(node, ast.Name):
        return place.get(node.id, 0.0)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return float(min(node.value, 1 << 40))
    if not isinstance(node, ast.BinOp) or depth > _DEEPEST:
        return 0.0
    a, b = _value(node.left, place, depth + 1), _value(node.right, place, depth + 1)
    if isinstance(node.op, ast.Add):
        return a + b
    if isinstance(node.op, ast.Sub):
        return a - b
    if isinstance(node.op, ast.Mult):
        return a * b
    if isinstance(node.op, ast.FloorDiv | ast.Mod) and np.all(b):
        return np.floor_divide(a, b) if isinstance(node.op, ast.FloorDiv) else np.mod(a, b)
    return 0.0


def _trips(statement: Statement) -> float:
    return math.prod((float(loop.extent) for loop in statement.loops), start=1.0)


def _log(x: float) -> float:
    return math.log2(1.0 + min(max(x, 0.0), 1e30))


def _row(statement: Statement) -> Floats:
    loops = [loop for loop in statement.loops if loop.extent != 1]
    if len(loops) > LOOPS:
        rest = math.prod((float(loop.extent) for loop in loops[LOOPS - 1 :]), start=1.0)
        loops = [
            *loops[: LOOPS - 1],
            Loop(int(min(rest, 1e15)), loops[LOOPS - 1].kind, loops[LOOPS - 1].strides),
        ]
    count = len(statement.sizes)
    inside, footprint, lines = 1.0, [1.0] * ACCESSES, [1.0] * ACCESSES
    row: list[float] = []
    for n, loop in enumerate(loops):
        extent = loop.extent
        strides = [*loop.strides, *[0.0] * (ACCESSES - count)]
        inside *= extent
        for k in range(count):
            if strides[k] > 0:
                footprint[k] = min(footprint[k] * extent, max(statement.sizes[k], 1))
            if strides[k] >= 1:
                lines[k] = min(lines[k] * (extent / LINE if strides[k] == 1 and n == 0 else extent), 1e12)
        kinds = [loop.kind == kind for kind in ("", "parallel", "vectorized", "unroll")]
        row += [1.0, _log(extent) / 3, *kinds, strides[0] == 0, extent % LINE == 0]
        for stride in strides:
            row += [stride == 0, stride == 1, stride > 1, min(_log(stride), 24.0) / 8]
        row += [_log(inside) / 8, _log(4 * sum(footprint[:count])) / 8]
        row += [_log(size) / 8 for size in (*footprint, *lines)]
    row += [0.0] * ((LOOPS - len(loops)) * _LOOP_COLUMNS)
    parallel = math.prod((float(loop.extent) for loop in loops if loop.kind == "parallel"), start=1.0)
    row += [_log(inside) / 8, _log(parallel) / 4, _log(inside / parallel) / 8, _log(statement.unroll) / 4]
    row += [statement.operator == kind for kind in ("+=", "=", "max=")]
    row += [len(loops) / 8, statement.reads / 3]
    row += [_log(size) / 8 for size in (*statement.sizes, *[0] * (ACCESSES - count))]
    row += [min(statement.text.count(name), 4) / 2 for name in _OPS]
    row.append("[" not in statement.text)
    return np.array(row, np.float32)
