"""Splits of workloads into training, validation and folds: whole networks, no shared programs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from wmsched.base.union_find import representative

if TYPE_CHECKING:
    from wmsched.schedules.types import Workload


MAX_HELD_OUT = 0.3  # share of all workloads, if possible

Member = TypeVar("Member")


def dealt(
    members: Mapping[str, Sequence[Member]], folds: int, *, key: Callable[[str], Any] | None = None
) -> list[list[Member]]:
    """Return the members of each fold; a name's members go together to the smallest fold.

    Parameters
    ----------
    key : callable (name), optional
        Sort key of the dealing order; default: names with most members first.
    """
    parts: list[list[Member]] = [[] for _ in range(min(folds, len(members)))]
    for name in sorted(members, key=key or (lambda name: (-len(members[name]), name))):
        min(parts, key=len).extend(members[name])
    return parts


def together(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each (network, program); equal names must stay on one side of a split.

    A network stays whole, and networks that share a program stay together, across machines too. The name
    is the first network's, or the program's without a network.
    """
    # the least name represents its set; networks sort before programs
    find = representative(((False, network), (True, program)) for network, program in labels if network)
    return [find((True, program))[1] for _, program in labels]


def networks_of(workloads: Sequence[Workload]) -> list[str]:
    """Return each workload's network; one name for all of `Workload.networks` if there are several."""
    find = representative(((False, one.network), (False, name)) for one in workloads for name in one.networks)
    return [find((False, one.network))[1] if one.network else "" for one in workloads]


def split_workloads(
    workloads: Sequence[Workload], *, fraction: float = 0.1, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Split workload ids into training and validation, whole networks at a time.

        Records of a workload are near copies, and so are layers of a network; a split by record would measure
        memory. With a single network the split is by program, across machines. The choice hashes names with
        the seed, so added workloads move few others.

    Parameters
    ----------
    fraction : least share of the workloads to hold out; a group that would exceed `MAX_HELD_OUT` trains,
        unless there is no other; then the smallest is held out
    seed : selects the networks

    Returns
    -------
    train, valid : sorted ids; ``valid`` is empty for a single program
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction={fraction} to hold out must be at least 0 and below 1")
    labels = zip(networks_of(workloads), (workload.key for workload in workloads), strict=True)
    names = together(list(labels))
    if len(set(names)) == 1:
        first: dict[str, str] = {}  # a program's id on its first machine
        names = [first.setdefault(workload.key, workload.id) for workload in workloads]
    groups: dict[str, list[str]] = {}
    for name, workload in zip(names, workloads):
        groups.setdefault(name, []).append(workload.id)
    order = sorted(groups, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    valid: list[str] = []
    for name in order[:-1]:  # the last group always trains
        if len(valid) >= fraction * len(workloads):
            break
        if len(valid) + len(groups[name]) <= max(MAX_HELD_OUT, 2 * fraction) * len(workloads):
            valid += groups[name]
    if not valid and fraction and len(groups) > 1:
        valid += groups[min(order, key=lambda name: len(groups[name]))]
    return sorted({workload.id for workload in workloads} - set(valid)), sorted(valid)
