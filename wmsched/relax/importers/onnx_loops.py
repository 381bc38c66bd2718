"""Loops and scans of ONNX graphs whose length is known, written out step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from wmsched.relax.importers.onnx_fold import rebuilt
from wmsched.relax.importers.onnx_rewrites import OWN, opset_of, renamed

MAX_STEPS = 512  # of a loop that is written out
MAX_NODES = 20_000  # that writing out loops may make


class Unrolled:
    """Graph whose loops and scans of known length are written out.

    Attributes
    ----------
    changed : bool
    """

    def __init__(self, model: Any, known: Mapping[str, Any], extents: Mapping[str, tuple[int, ...]]) -> None:
        self.opset, self.known, self.extents = opset_of(model), known, extents
        self.made, self.changed = 0, False
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        for node in model.graph.node:
            found = self._of(node)
            if found is None:
                self.nodes.append(node)
            else:
                self.changed = True
                self.nodes += found
        self.model = model

    def result(self) -> Any:
        """Return the new model; the old one where nothing changed."""
        if not self.changed:
            return self.model
        graph = self.model.graph
        return rebuilt(self.model, self.nodes, [*graph.initializer, *self.constants], list(graph.input))

    def _of(self, node: Any) -> list[Any] | None:
        if node.domain not in OWN or node.op_type not in ("Loop", "Scan"):
            return None
        found = self._loop(node) if node.op_type == "Loop" else self._scan(node)
        if found is None or self.made + len(found) > MAX_NODES:
            return None
        self.made += len(found)
        return found

    def _constant(self, value: Any) -> str:
        name = f"wmsched/constant{len(self.constants)}_{self.made}_{id(self) & 0xFFFF:x}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _unsqueezed(self, name: str, axis: int, output: str) -> Any:
        if self.opset >= 13:
            return helper.make_node("Unsqueeze", [name, self._constant(np.array([axis], np.int64))], [output])
        return helper.make_node("Unsqueeze", [name], [output], axes=[axis])

    def _joined(self, parts: list[str], axis: int, output: str) -> list[Any]:
        nodes = [self._unsqueezed(part, axis, f"{output}/{k}") for k, part in enumerate(parts)]
        names = [f"{output}/{k}" for k in range(len(parts))]
        return [*nodes, helper.make_node("Concat", names, [output], axis=axis)]

    def _loop(self, node: Any) -> list[Any] | None:
        body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        count, condition = (name for name in (*node.input[:2], "", "")[:2])
        if not count or count not in self.known or (condition and condition not in self.known):
            return None
        steps = int(np.asarray(self.known[count]).reshape(-1)[0])
        if condition and not bool(np.asarray(self.known[condition]).all()):
            steps = 0
        if steps > MAX_STEPS or not _goes_on(body):
            return None
        states = list(node.input[2:])
        collected: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
        nodes: list[Any] = []
        if steps == 0 and collected:
            return None
        for step in range(steps):
            given = [self._constant(np.int64(step)), self._constant(np.bool_(True)), *states]
            names = dict(zip((value.name for value in body.input), given))
            more, outputs = instance(body, names, f"{node.output[0] or node.name}/{step}")
            nodes += more
            states = outputs[1 : 1 + len(states)]
            for found, name in zip(collected, outputs[1 + len(states) :]):
                found.append(name)
        for name, output in zip(states, node.output):
            if output:
                nodes.append(helper.make_node("Identity", [name], [output]))
        for parts, output in zip(collected, node.output[len(states) :]):
            if output:
                nodes += self._joined(parts, 0, output)
        return nodes

    def _scan(self, node: Any) -> list[Any] | None:
        if self.opset < 9:
            return None
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        body, number = attributes["body"], int(attributes["num_scan_inputs"])
        scanned = list(node.input[len(node.input) - number :])
        states = list(node.input[: len(node.input) - number])
        count = len(body.output) - len(states)
        axes = list(attributes.get("scan_input_axes", [0] * number))
        backwards = list(attributes.get("scan_input_directions", [0] * number))
        out_axes = list(attributes.get("scan_output_axes", [0] * count))
        out_backwards = list(attributes.get("scan_output_directions", [0] * count))
        if not all(name in self.extents for name in scanned):
            return None
        ranks = [len(self.extents[name]) for name in scanned]
        axes = [axis % rank for axis, rank in zip(axes, ranks)]
        steps = self.extents[scanned[0]][axes[0]]
        if not 0 < steps <= MAX_STEPS or any(axis < 0 for axis in out_axes):
            return None
        collected: list[list[str]] = [[] for _ in range(count)]
        nodes: list[Any] = []
        for step in range(steps):
            given = list(states)
            for name, axis, back in zip(scanned, axes, backwards):
                place = self._constant(np.int64(steps - 1 - step if back else step))
                part = f"{node.output[0] or node.name}/{step}/in{len(given)}"
                nodes.append(helper.make_node("Gather", [name, place], [part], axis=axis))
                given.append(part)
            names = dict(zip((value.name for value in body.input), given))
            more, outputs = instance(body, names, f"{node.output[0] or node.name}/{step}")
            nodes += more
            states = outputs[: len(states)]
            for found, name in zip(collected, outputs[len(states) :]):
                found.append(name)
        for name, output in zip(states, node.output):
            if output:
                nodes.append(helper.make_node("Identity", [name], [output]))
        for parts, output, axis, back in zip(collected, node.output[len(states) :], out_axes, out_backwards):
            if output:
                nodes += self._joined(parts[::-1] if back else parts, axis, output)
        return nodes


def _goes_on(body: Any) -> bool:
    """Return whether a loop's body never ends the loop before its count."""
    wanted, given = body.output[0].name, body.input[1].name
    makers = {name: node for node in body.node for name in node.output}
    weights = {tensor.name: tensor for tensor in body.initializer}
    while True:
        if wanted == given:
            return True
        if wanted in weights:
            return bool(numpy_helper.to_array(weights[wanted]).all())
        node = makers.get(wanted)
        if node is None:
            return False
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            return bool(numpy_helper.to_array(node.attribute[0].t).all())
        if node.op_type not in ("Identity", "Cast"):
            return False
        wanted = node.input[0]


def instance(graph: Any, given: Mapping[str, str], prefix: str) -> tuple[list[Any], list[str]]:
    """Return the nodes of a body with names of their own, and the names of its outputs.

    Parameters
    ----------
    given : mapping of str to str
        Names that stand for the body's inputs.
    prefix : str
        Of the names that the body makes.
    """
    names = dict(given)
    made = {tensor.name for tensor in graph.initializer}.union(*(node.output for node in graph.node)) - {""}
    names |= {name: f"{prefix}/{name}" for name in made}
    nodes = [
        helper.make_node("Constant", [], [names[tensor.name]], value=tensor) for tensor in graph.initializer
    ]
    nodes += [renamed(node, names) for node in graph.node]
    return nodes, [names.get(value.name, value.name) for value in graph.output]
