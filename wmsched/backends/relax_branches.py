"""Branches of ONNX models: what they read from outside, and the one that is known to be taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from onnx import helper

GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def names_read(nodes: Iterable[Any]) -> set[str]:
    """What nodes read by name, in their branches and loops too, where an outer name is read as any other."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for graph in graphs_in(node):
            found |= names_read(graph.node) | {value.name for value in graph.output}
    return found


def graphs_in(node: Any) -> Iterator[Any]:
    """A node's branches or loop body."""
    for attribute in node.attribute:
        if attribute.type in GRAPHS:
            yield from [attribute.g] if attribute.type == GRAPHS[0] else attribute.graphs


def branch_taken(node: Any, condition: bool) -> list[Any] | None:
    """The nodes that an ``If`` comes to where its condition is known, in its place.

    Names of the branch are made anew, for the other branch may have them too. None where there are branches
    in the branch, whose names would have to be as well.
    """
    wanted = "then_branch" if condition else "else_branch"
    graph = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    if any(True for inner in graph.node for _ in graphs_in(inner)):
        return None
    own = {tensor.name for tensor in graph.initializer}.union(*(inner.output for inner in graph.node)) - {""}
    names = {name: f"wmsched/{node.output[0]}/{name}" for name in own}
    nodes = [
        helper.make_node("Constant", [], [names[tensor.name]], value=tensor) for tensor in graph.initializer
    ]
    for inner in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        for old, new in ((inner.input, copy.input), (inner.output, copy.output)):
            del new[:]
            new.extend(names.get(name, name) for name in old)
        nodes.append(copy)
    for value, output in zip(graph.output, node.output):
        if output:
            nodes.append(helper.make_node("Identity", [names.get(value.name, value.name)], [output]))
    return nodes
