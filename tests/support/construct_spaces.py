"""A product of two matrices as a design space, and a ranker of it whose best row is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wmsched.construct.graph import Graph, Schedule
from wmsched.schedules.types import Access, Iter, Stage, Workload
from wmsched.search.decision_space import DecisionSpace

CPU = '{"kind":"llvm","mcpu":"emeraldrapids","num-cores":2}'
GPU = '{"kind":"cuda","arch":"sm_90","model":"h100","max_threads_per_block":1024}'
BEST = (1, 2, 2, 4, 1, 1, 2, 8, 4, 2, 1)  # 16 x 16 x 8, and the second choice


def product(m: int, n: int, k: int, *, gpu: bool = False) -> tuple[DecisionSpace, Workload]:
    """Space and workload of C[m, n] = sum over k of A[m, k] B[n, k]."""
    spatial, reduction = (5, 3) if gpu else (4, 2)
    instructions: list = [
        ["GetSBlock", [], ["product", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l0", "l1", "l2"]],
    ]
    decisions: list = []
    for number, (parts, extent) in enumerate(((spatial, m), (spatial, n), (reduction, k))):
        decisions.append([len(instructions), [extent] + [1] * (parts - 1)])
        names = [f"v{number}{part}" for part in range(parts)]
        instructions.append(["SamplePerfectTile", [f"l{number}"], [parts, 64], names])
        loops = [f"s{number}{part}" for part in range(parts)]
        instructions.append(["Split", [f"l{number}", *names], [1, 0], loops])
        if gpu and parts == spatial:
            instructions.append(["Bind", [f"s{number}1"], [f"vthread.{'xy'[number]}"], []])
            instructions.append(["Bind", [f"s{number}2"], [f"threadIdx.{'xy'[number]}"], []])
    decisions.append([len(instructions), 0])
    instructions.append(["SampleCategorical", [], [[0, 16, 64], [0.4, 0.3, 0.3]], ["u"]])
    reads = (
        Access(0, (((0, 1),), ((2, 1),)), (m, k)),
        Access(1, (((1, 1),), ((2, 1),)), (n, k)),
    )
    stages = (
        Stage("a", "placeholder", shape=(m, k)),
        Stage("b", "placeholder", shape=(n, k)),
        Stage(
            "product", "compute", (Iter("i", m, "S"), Iter("j", n, "S"), Iter("k", k, "R")), reads, (), (m, n)
        ),
    )
    return DecisionSpace([instructions, decisions]), Workload("k", GPU if gpu else CPU, stages=stages)


def towards(best: Sequence[int]):
    """A judge whose margin falls with the distance to a row, and whose spread is 0."""

    def judge(schedules: Sequence[Schedule]):
        margins = np.array([margin(row, best) for _, row in schedules], dtype=np.float64)
        return margins, np.zeros(len(margins))

    return judge


def margin(row: Sequence[int], best: Sequence[int] = BEST) -> float:
    """Minus the distance of two rows: of lengths in doublings, and of the last number."""
    lengths = sum(abs(math.log2(a / b)) for a, b in zip(row[:-1], best[:-1]))
    return -(lengths + abs(row[-1] - best[-1]))


def graph_of(space: DecisionSpace, workload: Workload, best: Sequence[int] = BEST) -> Graph:
    """The graph, judged by the distance to a row."""
    return Graph([space], workload, towards(best))


def scored(keys: Sequence[bytes], schedules: Sequence[Schedule]):
    """Scores of schedules, by the same distance."""
    return np.exp([margin(row) for _, row in schedules])
