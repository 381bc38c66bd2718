"""Read a TensorIR function as stages: blocks, loops, accesses and operations, without TVM's printer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import tvm
import tvm.sym
from tvm import tirx

from wmsched.schedules.types import Access, Iter, Stage

# Fields that hold statements and expressions; this TVM's TIR has no Python visitor.
_FIELDS = (
    "body", "block", "seq", "then_case", "else_case", "value", "indices", "condition", "a", "b", "args",
    "true_value", "false_value", "source",
)  # fmt: skip
_OPS = ("Mul", "Add", "Sub", "Div", "Max", "Min", "Call", "Select", "Cast", "FloorDiv", "FloorMod")


def visit_nodes(node: Any, tell: Callable[[Any], None]) -> None:
    """Call `tell` for every statement and expression in `node`, in program order, outer ones first."""
    if isinstance(node, (str, int, float)):
        return
    if hasattr(node, "__iter__"):
        for part in node:
            visit_nodes(part, tell)
        return
    tell(node)
    for name in _FIELDS:
        part = getattr(node, name, None)
        if part is not None:
            visit_nodes(part, tell)


def has_node(node: Any, wanted: Callable[[Any], bool]) -> bool:
    """Return whether `wanted` holds for any statement or expression in `node`."""
    found = False

    def tell(part: Any) -> None:
        nonlocal found
        found = found or wanted(part)

    visit_nodes(node, tell)
    return found


def _function(mod: Any) -> Any:
    if isinstance(mod, tirx.PrimFunc):
        return mod
    found = {gv.name_hint: func for gv, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)}
    if not found:
        raise ValueError(f"the module has no PrimFunc, only {[gv.name_hint for gv in mod.get_global_vars()]}")
    return found.get("main", next(iter(found.values())))


def blocks_of(func: Any) -> tuple[list[Any], list[Any]]:
    """Return the arguments that an unscheduled PrimFunc reads, and its blocks; both become its stages."""
    blocks: list[Any] = []

    def find(node: Any) -> None:
        if type(node).__name__ == "SBlock" and node.iter_vars:
            blocks.append(node)

    visit_nodes(func.body, find)
    arguments = [param for param in func.params if hasattr(param, "shape")]  # scalars have none
    written = [tensor_of(region) for block in blocks for region in block.writes]
    return [one for one in arguments if not any(one.same_as(other) for other in written)], blocks


def stages_of(func: Any) -> tuple[tuple[Stage, ...], bool]:
    """Return the stages of an unscheduled PrimFunc, and whether they describe it completely."""
    arguments, blocks = blocks_of(func)
    exact = True
    place: dict[Any, int] = {}
    stages: list[Stage] = []
    for buffer in arguments:
        place[buffer] = len(stages)
        stages.append(Stage(str(buffer.name), "placeholder", (), (), (), _shape(buffer), _bytes(buffer)))
    for block in blocks:
        stage, complete = _stage(block, place)
        exact = exact and complete
        for region in block.writes:
            place[tensor_of(region)] = len(stages)
        stages.append(stage)
    return tuple(stages), exact and bool(blocks)


def _stage(block: Any, place: dict[Any, int]) -> tuple[Stage, bool]:
    variables = [v.var for v in block.iter_vars]
    iters = tuple(
        Iter(str(v.var.name), _const(v.dom.extent), "R" if int(v.iter_type) == 2 else "S")
        for v in block.iter_vars
    )
    own = [tensor_of(region) for region in block.writes]
    loads: list[Any] = []
    counts: Counter[str] = Counter()
    stores = 0

    def visit(node: Any) -> None:
        nonlocal stores
        kind = type(node).__name__
        if kind in ("TensorLoad", "BufferLoad"):
            loads.append(node)
        elif kind == "BufferStore":
            stores += 1
        elif kind == "Call":
            counts[str(node.op.name).rsplit(".", 1)[-1] if hasattr(node.op, "name") else "call"] += 1
        elif kind in _OPS:
            counts[kind] += 1

    visit_nodes(block.body, visit)
    reads: list[Access] = []
    for region in block.reads:  # CacheRead numbers reads in this order
        tensor = tensor_of(region)
        if any(tensor.same_as(buffer) for buffer in own):
            continue
        load = next((x for x in loads if tensor_of(x).same_as(tensor)), None)
        dims = tuple(_linear(i, variables) for i in load.indices) if load is not None else ()
        reads.append(Access(place.get(tensor, -1), dims, _shape(tensor)))
    if any(i.kind == "R" for i in iters):
        counts["Reduce"] += 1
    shape = _shape(own[0]) if own else ()
    nbytes = _bytes(own[0]) if own else 4
    stage = Stage(
        str(block.name_hint), "compute", iters, tuple(reads), tuple(sorted(counts.items())), shape, nbytes
    )
    return stage, stores == 1 and len(own) == 1


def tensor_of(node: Any) -> Any:
    """Return the tensor of a region or a load: `source` since TVM 0.26, `buffer` before."""
    return node.source if hasattr(node, "source") else node.buffer


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(_const(n) for n in buffer.shape)


def _bytes(buffer: Any) -> int:
    return max(1, tvm.DataType(str(buffer.dtype)).bits // 8)


def _const(x: Any) -> int:
    if isinstance(x, int):
        return x
    return int(x.value) if hasattr(x, "value") else 0


def _linear(index: Any, variables: list[Any]) -> tuple[tuple[int, int], ...]:
    """Return (iterator, coefficient) pairs; coefficient 0 marks a non-linear use of the iterator."""
    found = tvm.sym.detect_linear_equation(index, variables)
    if len(found):
        pairs = ((n, _const(c)) for n, c in enumerate(list(found)[:-1]))
        return tuple((n, c) for n, c in pairs if c != 0)
    used: list[tuple[int, int]] = []

    def visit(node: Any) -> None:
        for n, v in enumerate(variables):
            if node.same_as(v) and (n, 0) not in used:
                used.append((n, 0))

    visit_nodes(index, visit)
    return tuple(used)
