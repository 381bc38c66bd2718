"""The 22 representatives in PyTorch on a GPU: eager, and as a replayed CUDA graph, in float32.

    python -m benchmarks.tune.pytorch_subgraphs --out FILE

cuDNN and cuBLAS choose their fastest algorithms (`cudnn.benchmark`), in full float32 as TVM's programs
and again with TF32 for whoever allows it. Needs torch and numpy alone. A line for each subgraph, executor
and precision.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks import suites
from benchmarks.suites import REPRESENTATIVES, Representative

CALLS_MS = 20.0  # of a timing: so many calls in a row
WARM_UP = 5
EXECUTORS = ("eager", "graph")


def program(entry: Representative, inputs: Sequence[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A representative as a function of no arguments; its result has the suite's shape.

    Parameters
    ----------
    entry : Representative
    inputs : sequence of Tensor
        float32, of the suite's shapes without the last: channels last, weights as HWIO.

    Raises
    ------
    ValueError
        It is not known how PyTorch computes that.
    """
    first, *rest = entry.ops.split("_add")
    x = inputs[0]
    if first in ("conv2d", "conv3d"):
        return _convolution(entry, inputs)
    if entry.ops == "dense_add_multiply_multiply_erf_add_multiply":
        return lambda: F.gelu(F.linear(x, inputs[1], inputs[2][0]))
    if first == "dense":
        bias = inputs[2][0] if rest else None
        return lambda: F.linear(x, inputs[1], bias)
    if first == "batch_matmul":
        other = inputs[1].transpose(1, 2)
        return (lambda: torch.bmm(x, other) + inputs[2]) if rest else (lambda: torch.bmm(x, other))
    if entry.ops == "variance":
        return lambda: (x - inputs[1]).square().mean(-1, keepdim=True)
    if entry.ops == "mean":
        return lambda: x.mean(-1, keepdim=True)
    if entry.ops == "softmax":
        return lambda: F.softmax(x, -1)
    if entry.ops in ("adaptive_avg_pool2d", "max_pool2d"):
        pixels = x.permute(0, 3, 1, 2)
        if entry.ops == "max_pool2d":
            return lambda: F.max_pool2d(pixels, 3, 2, 1).permute(0, 2, 3, 1)
        return lambda: F.adaptive_avg_pool2d(pixels, 1).permute(0, 2, 3, 1)
    raise ValueError(f"{entry.type}: nothing in PyTorch is written for {entry.ops!r}")


def _convolution(entry: Representative, inputs: Sequence[torch.Tensor]) -> Callable[[], torch.Tensor]:
    found = suites.convolution(entry)
    axes = len(found.stride)
    apart = (0, axes + 1, *range(1, axes + 1))  # channels last as PyTorch has it: the order is in the strides
    back = (0, *range(2, axes + 2), 1)
    groups = inputs[found.data].shape[-1] if found.depthwise else 1
    order = (axes, axes + 1, *range(axes)) if found.depthwise else (axes + 1, axes, *range(axes))
    layout = torch.channels_last if axes == 2 else torch.channels_last_3d
    kernel = inputs[found.weight].permute(order).contiguous(memory_format=layout)
    pixels, offset = inputs[found.data].permute(apart), inputs[found.bias].flatten()
    convolve = F.conv2d if axes == 2 else F.conv3d
    others = [inputs[place].permute(apart) for place in found.residual]

    def run() -> torch.Tensor:
        y = convolve(pixels, kernel, offset, found.stride, found.padding, 1, groups)
        for other in others:
            y = y + other
        if entry.ops.endswith("clip"):
            y = F.relu6(y)
        elif entry.ops.endswith("relu"):
            y = F.relu(y)
        return y.permute(back)

    return run


def seconds(call: Callable[[], Any], rounds: int) -> list[float]:
    """Timings by CUDA's events, each of calls in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(count: int) -> float:
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / count

    for _ in range(WARM_UP):
        call()
    count = max(1, int(CALLS_MS / max(timed(10), 1e-3)))
    return [timed(count) * 1e-3 for _ in range(rounds)]


def graph(call: Callable[[], Any]) -> Callable[[], None]:
    """A call as a replayed CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()
    return captured.replay  # type: ignore[no-any-return]


def main(argv: list[str] | None = None) -> int:
    """Time all representatives on the first GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune.pytorch_subgraphs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    about = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    torch.backends.cudnn.benchmark = True
    with open(options.out, "a", encoding="utf-8") as stream, torch.inference_mode():
        for entry in REPRESENTATIVES:
            inputs = [torch.randn(shape, device="cuda") for shape in entry.shapes[:-1]]
            for tf32 in (False, True):
                torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
                call = program(entry, inputs)
                for executor in EXECUTORS:
                    timed = seconds(call if executor == "eager" else graph(call), options.rounds)
                    line = {
                        "kind": "subgraph",
                        "task": f"{entry.model}/{entry.index}",
                        "executor": executor,
                        "tf32": tf32,
                        "seconds": timed,
                        "median": statistics.median(timed),
                        "status": "ok",
                        **about,
                    }
                    stream.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
