"""The recorded candidates of MetaSchedule's stock spaces."""

from __future__ import annotations

import gzip
import json

import checkout

from wmsched.features.hardware import hardware_parameters
from wmsched.schedules.traces import steps_of
from wmsched.schedules.types import Workload

DATA = json.loads(gzip.decompress((checkout.DATA / "traces.json.gz").read_bytes()))
TARGETS = {
    "llvm": '{"kind":"llvm","mcpu":"sapphirerapids","num-cores":2}',
    "cuda": '{"kind":"cuda","arch":"sm_80","max_shared_memory_per_block":49152,"thread_warp_size":32}',
}


def workload(target: str, name: str) -> Workload:
    text = TARGETS[target]
    stages = Workload.stages_from_json(DATA["stages"][name])
    return Workload(name, text, hardware_parameters(text), stages, 1e6)


def candidates(target: str, name: str) -> list:
    return [
        steps_of(c["trace"]) for c in DATA["candidates"] if (c["target"], c["workload"]) == (target, name)
    ]


# The same schedule of the same computation, as AutoScheduler writes it.
ANSOR = [
    ["SP", 2, 0, 128, [4], 1],
    ["SP", 2, 2, 128, [16], 1],
    ["SP", 2, 4, 128, [8], 1],
    ["RE", 2, [0, 2, 4, 5, 1, 3]],
    ["FU", 2, [0, 1]],
    ["AN", 2, 0, 3],
    ["AN", 2, 4, 2],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
]
