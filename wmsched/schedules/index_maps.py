"""Read TVM's index maps from the JSON in a trace."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import orjson

CAST = "Cast"


def map_shape(text: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the extents after an index map (each expression's largest value + 1); 0 if unknown."""
    nodes, initial, final = _parse(text)
    at = {var: n - 1 for var, n in zip(initial, shape)}

    def top(k: int) -> int:
        k = _skip_casts(nodes, k)
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
    """Return the old index of each new one; [] if the map is no permutation."""
    nodes, initial, final = _parse(text)
    final = [_skip_casts(nodes, k) for k in final]
    return [initial.index(k) for k in final] if sorted(final) == sorted(initial) else []


def map_variables(text: Any) -> list[list[int]]:
    """Return the old indices that are in each new one, in their order."""
    nodes, initial, final = _parse(text)

    def visit(k: int) -> set[int]:
        k = _skip_casts(nodes, k)
        if k in initial:
            return {initial.index(k)}
        data = nodes[k].get("data")
        sides = [data[side] for side in ("a", "b") if side in data] if isinstance(data, dict) else []
        return set().union(*map(visit, sides))

    return [sorted(visit(k)) for k in final]


def map_kinds(text: Any, kinds: Sequence[str]) -> list[str]:
    """Return the kind of each new index: "R" if an old reduction index is in it, else "S"."""
    nodes, initial, final = _parse(text)
    of = dict(zip(initial, kinds))

    def visit(k: int) -> set[str]:
        k = _skip_casts(nodes, k)
        if k in of:
            return {of[k]}
        data = nodes[k].get("data")
        sides = [data[side] for side in ("a", "b") if side in data] if isinstance(data, dict) else []
        return set().union(*map(visit, sides))

    found = [visit(k) for k in final]
    return ["R" if "R" in each else "S" for each in found]


def _skip_casts(nodes: list[dict[str, Any]], k: int) -> int:
    """Return the node inside of casts: Relax's shapes have 64 bits, and the maps' variables 32."""
    while nodes[k]["type"].rsplit(".", 1)[-1] == CAST:
        k = nodes[k]["data"]["value"]
    return k


@functools.lru_cache(maxsize=1024)  # a search's candidates share a few maps
def _parse(text: Any) -> tuple[list[dict[str, Any]], list[int], list[int]]:
    """Return the nodes of an index map's JSON, and the node numbers of its variables and expressions."""
    whole = orjson.loads(text)
    if isinstance(whole, str):
        whole = orjson.loads(whole)
    nodes = whole["nodes"]
    data = nodes[whole["root_index"]]["data"]
    return nodes, nodes[data["initial_indices"]]["data"], nodes[data["final_indices"]]["data"]
