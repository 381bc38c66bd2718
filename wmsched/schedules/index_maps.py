"""TVM's index maps, read from the JSON that a trace holds of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import orjson

CAST = "Cast"


def map_shape(text: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """Extents after an index map: each expression at the largest indices, plus one; 0 where unknown."""
    nodes, initial, final = _map(text)
    at = {var: n - 1 for var, n in zip(initial, shape)}

    def top(k: int) -> int:
        k = _uncast(nodes, k)
        node = nodes[k]
        kind, data = node["type"], node["data"]
        if k in at:
            return at[k]
        if kind == "ir.IntImm":
            value = data["value"]
            return int(nodes[value]["data"] if nodes[value]["type"] == "int" else value)
        name = kind.rsplit(".", 1)[-1]
        if name in ("Add", "Mul", "FloorDiv", "FloorMod"):
            a, b = top(data["a"]), top(data["b"])
            return {"Add": a + b, "Mul": a * b, "FloorDiv": a // max(b, 1), "FloorMod": min(a, b - 1)}[name]
        raise LookupError(name)

    sizes = []
    for k in final:
        try:
            sizes.append(top(k) + 1)
        except (LookupError, TypeError, ValueError):
            sizes.append(0)
    return tuple(sizes)


def map_order(text: Any) -> list[int]:
    """The old index that each new one is; [] unless the map only changes their order."""
    nodes, initial, final = _map(text)
    final = [_uncast(nodes, k) for k in final]
    return [initial.index(k) for k in final] if sorted(final) == sorted(initial) else []


def map_kinds(text: Any, kinds: Sequence[str]) -> list[str]:
    """Kind of each new index: that of the old ones in it."""
    nodes, initial, final = _map(text)
    of = dict(zip(initial, kinds))

    def visit(k: int) -> set[str]:
        k = _uncast(nodes, k)
        if k in of:
            return {of[k]}
        data = nodes[k].get("data")
        sides = [data[side] for side in ("a", "b") if side in data] if isinstance(data, dict) else []
        return set().union(*map(visit, sides))

    found = [visit(k) for k in final]
    return ["R" if "R" in each else "S" for each in found]


def _uncast(nodes: list[dict[str, Any]], k: int) -> int:
    """The number of what a node is a cast of: Relax's shapes have 64 bits, and the maps' variables 32."""
    while nodes[k]["type"].rsplit(".", 1)[-1] == CAST:
        k = nodes[k]["data"]["value"]
    return k


@functools.lru_cache(maxsize=1024)  # a search's candidates have few of them between them
def _map(text: Any) -> tuple[list[dict[str, Any]], list[int], list[int]]:
    """Nodes of TVM's JSON of an index map, and the places of its variables and its expressions."""
    whole = orjson.loads(text)
    if isinstance(whole, str):
        whole = orjson.loads(whole)
    nodes = whole["nodes"]
    data = nodes[whole["root_index"]]["data"]
    return nodes, nodes[data["initial_indices"]]["data"], nodes[data["final_indices"]]["data"]
