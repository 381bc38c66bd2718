"""The checks of E and F, apart for the workloads that they were trained on and for those held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wmsched.dataset import Dataset
from wmsched.evaluate import states
from wmsched.evaluate.inputs import TaskInputs
from wmsched.model.world_model import WorldModel
from wmsched.schedules.types import Workload
from wmsched.training import split_workloads

SHOWN = 40  # workloads of each part whose texts and rollouts are read: more of them narrows no conclusion


def check_states(
    dataset: Dataset,
    model: WorldModel,
    tasks: Sequence[TaskInputs],
    *,
    trajectories: int,
    embeddings: Path | None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """E's retrieval and shape, F's terminal retrieval and rollouts; {part: numbers}.

    The parts are "trained on" and "held out" where the bundle says how its training split these data, and
    "not trained on" for data that it has not seen.
    """
    assert model.encoder is not None
    result: dict[str, Any] = {}
    for part, ids in parts(dataset, model).items():
        own = [task for task in tasks if task.key in set(ids)]
        if not own:
            continue
        few = _spread(ids, SHOWN)
        line: dict[str, Any] = {"workloads": len(own), "shape": states.terminal_shape(own)}
        line["retrieval"] = states.retrieval(dataset, model.encoder, few)
        if model.transition is not None:
            line["terminal"] = states.terminal_retrieval(own)
            line["rollouts"] = states.rollouts(
                dataset, model.encoder, model.transition, few,
                trajectories=trajectories, embeddings=embeddings, log=log,
            )  # fmt: skip
        result[part] = line
    return result


def parts(dataset: Dataset, model: WorldModel) -> dict[str, list[str]]:
    """Workload ids by what E and F have seen of them."""
    seen = model.about.get("parts_fingerprint") or model.about.get("fingerprint", {})
    known = set(seen.get("workloads", ()))
    mine: list[Workload] = []
    others: list[Workload] = []
    for workload in dataset.workloads():
        (mine if _program(workload) in known else others).append(workload)
    result = {"not trained on": [workload.id for workload in others]}
    stored = model.about.get("settings", {}).get("encoder_training", {})
    if {_program(workload) for workload in mine} == known and stored:
        train, held = split_workloads(mine, fraction=stored["valid_fraction"], seed=stored["seed"])
        result |= {"held out": held, "trained on": train}
    else:  # a part of the training data: its split cannot be told
        result["trained on, or held out"] = [workload.id for workload in mine]
    return {name: ids for name, ids in result.items() if ids}


def _program(workload: Workload) -> str:
    return hashlib.sha256(workload.key.encode()).hexdigest()


def _spread(ids: Sequence[str], most: int) -> list[str]:
    return list(ids)[:: -(-len(ids) // most)] if ids else []
