"""A record of a program that the wheel's alias tags spoilt."""

from __future__ import annotations

import json

TARGET = "llvm -keys=cpu -mcpu=znver4 -mtriple=x86_64-linux-gnu -num-cores=2"
# Of a 1x1 convolution of ResNet-50: accumulators of 7 rows of 32, unrolled in vectors of 16, read by a loop.
# On a core of 118 GFLOP/s at most, the wheel's unmended build "ran" at 300.
SPOILT = [
    ["CI", 5], ["SP", 3, 0, 1, [1, 1, 1], 1], ["SP", 3, 4, 14, [1, 1, 7], 1], ["SP", 3, 8, 14, [1, 1, 1], 1],
    ["SP", 3, 12, 256, [1, 2, 16], 1], ["SP", 3, 16, 1, [1], 1], ["SP", 3, 18, 1, [1], 1],
    ["SP", 3, 20, 1024, [1], 1],
    ["RE", 3, [0, 4, 8, 12, 1, 5, 9, 13, 16, 18, 20, 2, 6, 10, 14, 17, 19, 21, 3, 7, 11, 15]],
    ["FSP", 6, 0, 1, 1], ["FSP", 6, 2, 2, 1], ["FSP", 6, 4, 3, 1], ["FSP", 6, 6, 4, 1],
    ["RE", 6, [0, 2, 4, 6, 1, 3, 5, 7]], ["CA", 3, 6, 3], ["CI", 1], ["FU", 6, [0, 1, 2, 3]], ["AN", 6, 0, 3],
    ["PR", 3, 0, "auto_unroll_max_step$64"], ["AN", 3, 21, 2], ["AN", 6, 4, 2],
]  # fmt: skip


def line(row, steps, stamp: int, target: str = TARGET) -> str:
    return json.dumps(
        {
            "i": [[row["workload_key"], target, [1, 64, 64, 0, 0, 0, 0, 0], "", 2, []], [[], steps]],
            "r": [[0.001], 0, 0.1, stamp],
            "v": "v0.6",
        }
    )
