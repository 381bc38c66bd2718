"""A product of matrices, and columns of phi by their names."""

from __future__ import annotations

from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.schedules.types import Access, Iter, Stage, Workload

AXES = (Iter("i", 64, "S"), Iter("j", 64, "S"), Iter("k", 64, "R"))
READS = (
    Access(0, (((0, 1),), ((2, 1),)), (64, 64)),
    Access(1, (((2, 1),), ((1, 1),)), (64, 64)),
)
MATMUL = Workload(
    "matmul",
    hardware=(2, 64, 64, 0, 0, 0, 0, 0),
    stages=(
        Stage("A", "placeholder", shape=(64, 64)),
        Stage("B", "placeholder", shape=(64, 64)),
        Stage("C", "compute", AXES, READS, (("Add", 1), ("Mul", 1), ("Reduce", 1)), (64, 64)),
    ),
    flop_ct=2.0 * 64**3,
)


def column(name: str, found: list, workload: Workload = MATMUL) -> float:
    phi, _ = features([found], workload)
    return float(phi[0, FEATURE_NAMES.index(name)])
