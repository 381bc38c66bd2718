"""What stands in for TVM's objects in a pickle that another version wrote.

TenSet's pickles are of TVM 0.8, and users have theirs: of an object whose fields have changed since, such as
a target, TVM's own loader wants all of today's. Only a target's text and a DAG's tensors are read here.
"""

from __future__ import annotations

import json
from typing import Any


class Task:
    """Stands for a SearchTask: TVM 0.8 pickled tasks without `desc`, which later ones insist on."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state


class Parameters:
    """Stands for HardwareParams, which a record has in its own line."""

    def __setstate__(self, state: Any) -> None:
        pass


class Target:
    """Stands for a target; its text is as a log has it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.text = target_text(str(state["handle"]))

    def __str__(self) -> str:
        return self.text


class Dag:
    """Stands for a compute DAG until TVM makes one of its tensors, brought up to date."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.tensors = str(state["tensors"])

    def made(self, tvm: Any) -> Any:
        """TVM's ComputeDAG."""
        return tvm.auto_scheduler.ComputeDAG(list(tvm.ir.load_json(self.tensors)))


#: By module and name, as a pickle asks for them.
STAND_INS = {
    ("tvm.auto_scheduler.search_task", "SearchTask"): Task,
    ("tvm.auto_scheduler.search_task", "HardwareParams"): Parameters,
    ("tvm.auto_scheduler.compute_dag", "ComputeDAG"): Dag,
    ("tvm.target.target", "Target"): Target,
}


def target_text(saved: str) -> str:
    """A target's text out of TVM's JSON of one, of any version: kind, keys, then the options by name."""
    graph = json.loads(saved)
    nodes = graph["nodes"]

    def value(place: Any) -> Any:
        node = nodes[int(place)]
        if "repr_str" in node:
            return node["repr_str"]
        attributes, data = node.get("attrs", {}), node.get("data", [])
        if node.get("type_key") == "Map":
            return {key: value(one) for key, one in zip(node["keys"], data, strict=True)}
        if "value" in attributes:
            return attributes["value"]
        return [value(one) for one in data]

    root = nodes[int(graph["root"])]
    if root.get("type_key") != "Target":  # the root may be one of several
        root = next(node for node in nodes if node.get("type_key") == "Target")
    whole = root["attrs"]
    kind = nodes[int(whole["kind"])]
    name = kind.get("repr_str") or value(kind["attrs"]["name"])
    keys = value(whole["keys"])
    options = {key: one for key, one in sorted(value(whole["attrs"]).items()) if one not in ("", [])}
    texts = [name, *([f"-keys={','.join(keys)}"] if keys else [])]
    texts += [
        f"-{key}={','.join(map(str, one)) if isinstance(one, list) else one}" for key, one in options.items()
    ]
    return " ".join(texts)
