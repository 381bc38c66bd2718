"""Training of E, F and G from a dataset directory; needs no TVM.

One flat loop a part: :mod:`wmsched.training.encoder`, :mod:`wmsched.training.transition`. What they share is
small: the split below, :mod:`wmsched.training.checkpoint` and :mod:`wmsched.training.embeddings`. Importing
this package loads neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wmsched.types import Workload


def split_workloads(
    workloads: Sequence[Workload], *, fraction: float = 0.1, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Split workload ids into training and validation, whole networks at a time.

    Records of one workload are near copies of each other and so are the layers of one network; a split by
    record would measure memory. Where there is only one network the split is by workload. The choice hashes
    names with the seed, so that adding workloads moves few of the others.

    Parameters
    ----------
    fraction : least share of the workloads to hold out
    seed : selects the networks

    Returns
    -------
    train, valid : sorted ids; ``valid`` is empty when there is nothing to spare (a single workload)
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction={fraction} to hold out must be at least 0 and below 1")
    groups: dict[str, list[str]] = {}
    for workload in workloads:
        # by key where the network is unknown: one program measured on two machines stays on one side
        groups.setdefault(workload.network or workload.key, []).append(workload.id)
    if len(groups) == 1:
        groups = {workload.id: [workload.id] for workload in workloads}
    order = sorted(groups, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    valid: list[str] = []
    for name in order[:-1]:  # the last group always trains
        if len(valid) >= fraction * len(workloads):
            break
        valid += groups[name]
    return sorted({workload.id for workload in workloads} - set(valid)), sorted(valid)
