"""A model in a process of its own, for `benchmarks.runtimes.busy`: run as a file, by the Python that has its
runtime.

Says "ready" once the model has run; for each line of standard input, a number of seconds, it calls the model
for so long and prints the latencies, in microseconds, as a JSON list. With a number of workers, so many
copies of the process do that at once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WARM_CALLS = 20
LEAST_CALLS = 5
ROUNDS, TURN_SECONDS = 15, 0.05  # of `overhead`
HALF = "-bf16"  # at the end of a model's name: in bfloat16
MOST_CALLS = 20_000  # that are reported: every n-th of more


def tuned(folder: str) -> Callable[[], Any]:
    """A call of what `wmsched tune` left in `folder`."""
    import wmsched

    model = wmsched.load(folder)
    data = inputs((one["shape"], one["dtype"]) for one in model.inputs)
    return lambda: model(*data)


def bare(folder: str) -> Callable[[], Any]:
    """The same by TVM's virtual machine alone, with TVM's own pool as TVM sets it up."""
    import tvm
    from tvm import relax

    device = tvm.cpu(0)
    machine = relax.VirtualMachine(tvm.runtime.load_module(f"{folder}/model.so"), device)
    with open(f"{folder}/model.json", encoding="utf-8") as file:
        about = json.load(file)["inputs"]
    data = [tvm.runtime.tensor(one, device) for one in inputs((one["shape"], one["dtype"]) for one in about)]
    main = machine["main"]
    return lambda: main(*data)


def onnxruntime(path: str) -> Callable[[], Any]:
    """A call of an ONNX model, with onnxruntime's own settings."""
    import onnxruntime as ort

    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    types = {"tensor(float)": "float32", "tensor(int64)": "int64"}
    data = inputs((one.shape, types[one.type]) for one in session.get_inputs())
    named = dict(zip((one.name for one in session.get_inputs()), data))
    return lambda: session.run(None, named)


def inputs(described: Any) -> list[Any]:
    """Arrays of these shapes and types, drawn at random; whole numbers are 0."""
    draw = np.random.default_rng(0)
    return [
        draw.standard_normal(shape).astype(dtype) if dtype.startswith("float") else np.zeros(shape, dtype)
        for shape, dtype in described
    ]


def latencies(call: Callable[[], Any], seconds: float) -> list[float]:
    """Microseconds of each call of a spell."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(found) < LEAST_CALLS:
        call()
        found.append(round(1e6 * (time.perf_counter() - start), 2))
    return found[:: -(-len(found) // MOST_CALLS)]


def by_workers(call: Callable[[], Any], seconds: float, count: int) -> list[float]:
    """The same by so many copies of this process at once, as a server forks its workers."""
    ends: list[tuple[int, int]] = []
    for _ in range(count):
        reading, writing = os.pipe()
        if not (process := os.fork()):
            status = 1
            try:
                call()  # starts threads, which a copy has none of
                with os.fdopen(writing, "w") as file:
                    json.dump(latencies(call, seconds), file)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        ends.append((process, reading))
    found: list[float] = []
    for process, reading in ends:
        with os.fdopen(reading) as file:
            text = file.read()
        if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
            raise RuntimeError(f"worker {process} failed: see above")
        found += json.loads(text)
    return found


def overhead(folder: str) -> dict[str, float]:
    """Median microseconds of a call by `wmsched.load`, of the bare virtual machine's, and their ratio.

    In turns, by `ROUNDS` rounds whose ratios' median counts: what disturbs a round disturbs both. "bare" is
    the virtual machine that the loaded model has, called by itself. "another" is a second one of the same
    library, whose weights lie elsewhere: what that alone does is no matter of the call.
    """
    import tvm
    from tvm import relax

    import wmsched

    model = wmsched.load(folder)
    data = inputs((one["shape"], one["dtype"]) for one in model.inputs)
    library = model.folder / model.report["library"]["file"]
    other = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu(0))["main"]
    main, given = model._function, [tvm.runtime.tensor(one) for one in data]
    calls = {"load": lambda: model(*data), "bare": lambda: main(*given), "another": lambda: other(*given)}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            times = latencies(calls[name], TURN_SECONDS)
            if turn:  # the first warms up
                found[name].append(float(np.median(times)))
    ratios = [load / bare for load, bare in zip(found["load"], found["bare"])]
    return {name: float(np.median(times)) for name, times in found.items()} | {
        "ratio": float(np.median(ratios))
    }


def openvino(path: str) -> Callable[[], Any]:
    """A call of an ONNX model in OpenVINO: latency mode, float32 or, of NAME-bf16.onnx, NAME in bfloat16."""
    import openvino as ov

    core = ov.Core()
    precision = "bf16" if path.endswith(f"{HALF}.onnx") else "f32"
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    compiled = core.compile_model(path.replace(f"{HALF}.onnx", ".onnx"), "CPU", hints)
    data = inputs((tuple(one.shape), one.element_type.to_dtype().name) for one in compiled.inputs)
    request = compiled.create_infer_request()
    return lambda: request.infer(data)


def eager(name: str) -> Callable[[], Any]:
    """A call of a model of `benchmarks.runtimes.models` in PyTorch; NAME-bf16 with autocast."""
    return _torch(name, lambda model: model)


def compiled(name: str) -> Callable[[], Any]:
    """The same by torch.compile."""
    import torch

    return _torch(name, torch.compile)


def _torch(name: str, made: Callable[[Any], Any]) -> Callable[[], Any]:
    import torch

    from benchmarks.runtimes.models import build

    torch.set_grad_enabled(False)
    model, data = build(name.removesuffix(HALF))
    fast = made(model)

    def rounded() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return fast(data)

    return rounded if name.endswith(HALF) else lambda: fast(data)


RUNTIMES = {
    "ours": tuned,
    "constructed": tuned,
    "searched": tuned,
    "tvm-pool": tuned,
    "tvm": bare,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "eager": eager,
    "torch.compile": compiled,
}


def main() -> None:
    if sys.argv[1] == "overhead":
        print(json.dumps(overhead(sys.argv[2])))
        return
    call = RUNTIMES[sys.argv[1]](sys.argv[2])
    for _ in range(WARM_CALLS):
        call()
    print("ready", flush=True)
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    for line in sys.stdin:
        seconds = float(line)
        found = by_workers(call, seconds, workers) if workers else latencies(call, seconds)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
