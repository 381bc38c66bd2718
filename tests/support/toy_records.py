"""Measured records in memory, with the interface of wmsched.learn.data.dataset.Dataset, and a tiny model for
them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from wmsched.features.hardware import hardware_features
from wmsched.model.config import EncoderConfig
from wmsched.model.encoder import StateEncoder
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import RowBuilder
from wmsched.model.tokenizer import train_tokenizer
from wmsched.model.transition import TransitionConfig, TransitionModel
from wmsched.model.world_model import WorldModel
from wmsched.schedules.types import Iter, Measurement, Stage, Trajectory, Workload

TARGET = "llvm -mcpu=znver4 -num-cores=2"
LATER = ("inner", "unrolled", "marked")


def candidates(n: int) -> list:
    return [
        [["SP", 1, 0, n, [inner], 1], ["PR", 1, 0, f"auto_unroll_max_step${unroll}"], ["AN", 1, 1, mark]]
        for inner in (1, 2, 4, 8, 16, 32)
        for unroll in (0, 64)
        for mark in (1, 2)
    ]


def workload(n: int, network: str) -> Workload:
    stages = (
        Stage("A", "placeholder", shape=(n,)),
        Stage("B", "compute", (Iter("i", n, "S"),), (), (("Mul", 1),), (n,)),
    )
    return Workload(f"toy{n}", TARGET, stages=stages, network=network, desc=f"vm_mod_fused_nn_dense_{n}")


def seconds(steps: list, n: int) -> float:
    """Wide inner loops and vectors are fast; the rest matters little."""
    return 1e-6 * n / (1 + steps[0][4][0] * steps[2][3]) * (1 + 0.001 * len(steps[1][3]))


class ToyRecords:
    """`count` workloads of three networks; `slower` turns the order of the inner sizes round."""

    def __init__(self, root: Path, *, count: int = 6, replayed: int = 24, slower: bool = False) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        (root / "manifest.json").write_text(json.dumps([count, replayed, slower]))
        self._workloads = [workload(64 << k, f"net{k % 3}") for k in range(count)]
        self._states: dict[str, dict[str, str]] = {}
        self._trajectories: dict[str, list[Trajectory]] = {}
        for k, own in enumerate(self._workloads):
            texts, found = {}, []
            for place, steps in enumerate(candidates(64 << k)):
                lines = [self.initial(own.id), *(f"# {w} {s}\n" for w, s in zip(LATER, steps))]
                chain = ["".join(lines[: end + 1]) for end in range(4)]
                names = [hashlib.sha256(text.encode()).hexdigest() for text in chain]
                texts |= dict(zip(names, chain))
                time = seconds(steps, 64 << k)
                if slower:
                    time = 1e-9 / time
                bad = place == 5
                found.append(
                    Trajectory(
                        own.id,
                        steps,
                        tuple(str(step) for step in steps),
                        tuple(names) if place < replayed else (),
                        Measurement((1e10,), 4) if bad else Measurement((time,)),
                    )
                )
            self._states[own.id], self._trajectories[own.id] = texts, found

    def workloads(self) -> list[Workload]:
        return sorted(self._workloads, key=lambda item: item.id)

    def trajectories(self, workload_id: str) -> list[Trajectory]:
        return self._trajectories[workload_id]

    def disturbed(self, workload_id: str) -> list[bool | None]:
        return [None] * len(self._trajectories[workload_id])  # nobody checked

    def iter_trajectories(self):
        return iter(self._trajectories.items())

    def states(self, workload_id: str) -> dict[str, str]:
        return self._states[workload_id]

    def initial(self, workload_id: str) -> str:
        own = next(item for item in self._workloads if item.id == workload_id)
        return f"for i in range({own.stages[1].shape[0]}):\n    B[i] = A[i] * T.float32(2)\n"

    def fingerprint(self) -> dict:
        keys = sorted(hashlib.sha256(item.key.encode()).hexdigest() for item in self._workloads)
        return {"workloads": keys, "records": 24 * len(keys), "sources": [self.root.name]}


def tiny_model(data: ToyRecords) -> WorldModel:
    """E and F with random weights, G fitted to `data`."""
    import torch

    torch.manual_seed(0)
    texts = [data.initial(item.id) for item in data.workloads()]
    shape = {
        "hidden": 16,
        "layers": 1,
        "heads": 2,
        "feedforward": 16,
        "max_length": 64,
        "stride": 8,
        "dim": 8,
    }
    encoder = StateEncoder(
        EncoderConfig(vocab_size=300, **shape), train_tokenizer(texts, vocab_size=300)
    ).eval()
    transition = TransitionModel(TransitionConfig(features=16, dim=8, action=8, hidden=16)).eval()
    builder, groups = RowBuilder(encoder=encoder, transition=transition), []
    for item in data.workloads():
        own = data.trajectories(item.id)
        z0 = builder.initial(data.initial(item.id))
        rows = builder.rows(item, z0, hardware_features(item), [t.steps for t in own])
        groups.append(RankGroup(item.id, rows, np.array([t.measurement.seconds for t in own]), item.network))
    ranker = Ranker.fit(groups, RankerConfig(rounds=20, depth=3, threads=1))
    return WorldModel(
        ranker, encoder=encoder, transition=transition, about={"fingerprint": data.fingerprint()}
    )
