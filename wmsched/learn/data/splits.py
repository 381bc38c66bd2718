"""Training of E, F and G from a dataset directory; needs no TVM.

One flat loop a part: :mod:`wmsched.learn.training.train_encoder`,
:mod:`wmsched.learn.training.train_transition`. What they share is small: the split below,
:mod:`wmsched.learn.training.checkpoint` and :mod:`wmsched.learn.data.embeddings`. Importing this package
loads neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from wmsched.base.union_find import representative

if TYPE_CHECKING:
    from wmsched.schedules.types import Workload


MOST = 0.3  # of all workloads that are held out, where that can be

Member = TypeVar("Member")


def dealt(
    members: Mapping[str, Sequence[Member]], folds: int, *, key: Callable[[str], Any] | None = None
) -> list[list[Member]]:
    """The members of each fold, those of a name together: each name goes onto the fold that has fewest.

    Parameters
    ----------
    key : callable (name), optional
        Of the order in which they are dealt; by default the name with most members comes first.
    """
    parts: list[list[Member]] = [[] for _ in range(min(folds, len(members)))]
    for name in sorted(members, key=key or (lambda name: (-len(members[name]), name))):
        min(parts, key=len).extend(members[name])
    return parts


def together(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Names of what has to stay on one side of a split, one for each (network, program).

    A network stays whole, and so do networks that share a program, or that a program is taken for on one
    machine and on another. The name is the network's, of several the first, and the program's where there is
    none.
    """
    # the least name stands for the others, and networks come before programs
    find = representative(((False, network), (True, program)) for network, program in labels if network)
    return [find((True, program))[1] for _, program in labels]


def networks_of(workloads: Sequence[Workload]) -> list[str]:
    """Each workload's network; where one has several (`Workload.networks`), one name for all of these."""
    find = representative(((False, one.network), (False, name)) for one in workloads for name in one.networks)
    return [find((False, one.network))[1] if one.network else "" for one in workloads]


def split_workloads(
    workloads: Sequence[Workload], *, fraction: float = 0.1, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Split workload ids into training and validation, whole networks at a time.

    Records of one workload are near copies of each other and so are the layers of one network; a split by
    record would measure memory. Where there is only one network the split is by program, whatever machines
    measured it. The choice hashes names with the seed, so that adding workloads moves few of the others.

    Parameters
    ----------
    fraction : least share of the workloads to hold out; a group that would take it beyond `MOST` of them
        trains, and where there is no other, the smallest is held out
    seed : selects the networks

    Returns
    -------
    train, valid : sorted ids; ``valid`` is empty when there is nothing to spare (a single program)
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction={fraction} to hold out must be at least 0 and below 1")
    labels = zip(networks_of(workloads), (workload.key for workload in workloads), strict=True)
    names = together(list(labels))
    if len(set(names)) == 1:
        first: dict[str, str] = {}  # a program goes by the id of its first machine
        names = [first.setdefault(workload.key, workload.id) for workload in workloads]
    groups: dict[str, list[str]] = {}
    for name, workload in zip(names, workloads):
        groups.setdefault(name, []).append(workload.id)
    order = sorted(groups, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    valid: list[str] = []
    for name in order[:-1]:  # the last group always trains
        if len(valid) >= fraction * len(workloads):
            break
        if len(valid) + len(groups[name]) <= max(MOST, 2 * fraction) * len(workloads):
            valid += groups[name]
    if not valid and fraction and len(groups) > 1:
        valid += groups[min(order, key=lambda name: len(groups[name]))]
    return sorted({workload.id for workload in workloads} - set(valid)), sorted(valid)
