"""Half precision on a GPU in at most eight minutes: numbers, products and whole models, beside PyTorch.

    python -m benchmarks.gpu.minutes --out half.jsonl                     # on a machine with an NVIDIA GPU
    python -m benchmarks.gpu.minutes --simulate "RTX 4090" --out try.jsonl --seconds 120    # a rehearsal

Each line is written when it is known, so a run that is cut short keeps what it has. Stages:

- numbers: a schedule of each tensor-core space of each kind of product, run once, compared with PyTorch's
  float32, and timed;
- products: each kind tuned with few trials, beside PyTorch's own kernel in the same type, as a CUDA graph;
- models: `wmsched tune --half`, beside torch.compile of the model in the same type with CUDA graphs.

A rehearsal takes a made-up GPU: it draws, builds and, where NVRTC is, compiles the same schedules, and
searches with invented times. Its lines say "simulated", and their times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.compile_kinds import context_of, drawn, is_tensor_core, source_of
from benchmarks.gpu.kinds import KINDS, Kind

STAGES = {"numbers": 0.25, "products": 0.35, "models": 0.4}  # shares of the time
MAX_SECONDS = 480
MAX_DRAWS = 100
MODELS = ("resnet50", "bert-base")
MOST = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-4}  # of the largest output, by its type


def numbers(kinds: tuple[Kind, ...], board: str, *, simulated: bool) -> Iterator[dict[str, Any]]:
    """Yield a line for a schedule of each space."""
    for kind in kinds:
        context, designs = context_of(kind, board)
        for space, design in enumerate(designs):
            if not is_tensor_core(design):
                continue
            line: dict[str, Any] = {"kind": kind.name, "space": space}
            found = (drawn(context, design, seed) for seed in range(1, MAX_DRAWS + 1))
            schedule = next((one for one in found if one is not None), None)
            if schedule is None:
                yield line | {"status": "no schedule"}
                continue
            try:
                yield line | (_compiled if simulated else _ran)(kind, schedule, context.target)
            except Exception as error:  # of TVM, NVRTC or the driver; there is no common base
                yield line | {"status": "failed", "error": str(error).strip()[-400:]}


def _compiled(kind: Kind, schedule: Any, target: Any) -> dict[str, Any]:
    from benchmarks.gpu.cubins import cubin, resources, supported
    from wmsched.base.errors import EnvironmentProblem

    source, shared = source_of(schedule, target)
    try:
        supported()
    except EnvironmentProblem:
        return {"status": "source", "shared": shared}
    kernels = resources(cubin(source, str(target.attrs["arch"]))).values()
    return {"status": "compiled", "shared": shared, "registers": max(one.registers for one in kernels)}


def _ran(kind: Kind, schedule: Any, target: Any) -> dict[str, Any]:
    import tvm

    from wmsched.metaschedule.measure.builder import build

    tensors = _tensors(kind)
    run = build(schedule.mod, target)
    given = [tvm.runtime.from_dlpack(one) for one in tensors]
    run["main"](*given)
    given[-1].device.sync()
    off = _difference(tensors[2].float(), _expected(kind, *tensors[:2]))
    seconds = run.time_evaluator("main", given[-1].device, number=20, repeat=3)(*given).mean
    status = "ok" if off <= MOST[kind.out] else "wrong"
    return {"status": status, "difference": off, "seconds": seconds, "tflops": kind.flops / seconds / 1e12}


def _tensors(kind: Kind) -> list[Any]:
    """Return random operands on the GPU, and memory for the output."""
    import torch

    generator = torch.Generator("cuda").manual_seed(1)
    found = []
    for place, parameter in enumerate(kind.function().params):
        shape, dtype = [int(n) for n in parameter.shape], getattr(torch, str(parameter.dtype))
        data = torch.randn(shape, generator=generator, device="cuda").to(dtype)
        found.append(torch.zeros_like(data) if place == 2 else data)
    return found


def _product(kind: Kind, a: Any, b: Any) -> Any:
    """Return PyTorch's product of two tensors, in their type."""
    import torch

    if not kind.layout:
        return torch.matmul(a, b.mT if kind.transposed else b)
    *_, kernel, stride = kind.shape
    if kind.layout == "NHWC":
        a, b = a.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1)
    found = torch.nn.functional.conv2d(a, b, stride=stride, padding=kernel // 2)
    return found.permute(0, 2, 3, 1) if kind.layout == "NHWC" else found


def _expected(kind: Kind, a: Any, b: Any) -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return _product(kind, a.float(), b.float())


def _difference(found: Any, expected: Any) -> float:
    return float((found.reshape(expected.shape) - expected).abs().max() / expected.abs().max())


def products(
    kinds: tuple[Kind, ...], board: str, trials: int, *, simulated: bool
) -> Iterator[dict[str, Any]]:
    """Yield a line for each kind, tuned."""
    from benchmarks.tune.meta.simulated import MODEL, machine, timing
    from wmsched.metaschedule.tune import tune_tir

    for kind in kinds:
        context, _ = context_of(kind, board)
        module, more = context.mod, {}
        if simulated:
            more["builder"], more["runner"] = machine(timing(MODEL, module, context.target))
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            database = tune_tir(module, context.target, folder, trials, seed=1, **more)
            record = database.query_tuning_record(module, context.target, "main")
            measured = len(database)
        line: dict[str, Any] = {
            "kind": kind.name,
            "trials": measured,
            "search_seconds": time.perf_counter() - start,
        }
        if record is None:
            yield line | {"status": "no schedule ran"}
            continue
        line |= {"seconds": sum(map(float, record.run_secs)) / len(record.run_secs)}
        line["tensor_cores"] = "Tensorize" in str(record.trace.as_json())
        if not simulated:
            a, b, _ = _tensors(kind)
            line["pytorch"] = _graph_seconds(lambda: _product(kind, a, b))  # noqa: B023
            line["speedup"] = line["pytorch"] / line["seconds"]
        yield line | {"status": "ok"}


def _graph_seconds(call: Callable[[], Any], calls: int = 50) -> float:
    """Return the seconds of a call on the GPU, replayed as a CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    best = math.inf
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            graph.replay()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def models(names: tuple[str, ...], half: str, minutes: float, mode: str) -> Iterator[dict[str, Any]]:
    """Yield a line for each whole model: tuned here, and compiled by PyTorch."""
    for name in names:
        line: dict[str, Any] = {"model": name, "half": half}
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "wmsched",
                "tune",
                name,
                "--scheduler",
                "meta",
                "--target",
                "cuda",
            ]
            command += ["--half", half, "--minutes", str(minutes), "--out", f"{folder}/out"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            report = Path(folder) / "out" / "report.json"
            if done.returncode or not report.is_file():
                yield line | {"status": "failed", "error": (done.stderr or done.stdout)[-800:]}
                continue
            told = json.loads(report.read_text())
        line |= {key: told[key] for key in ("seconds", "difference", "cuda_graph")}
        try:
            line["torch_compile"] = _compiled_seconds(name, half, mode)
            line["speedup"] = line["torch_compile"] / told["seconds"]["tuned"]
            yield line | {"status": "ok", "mode": mode}
        except Exception as error:  # of torch.compile; there is no common base
            yield line | {"status": "no torch.compile", "error": str(error)[-400:]}


def _compiled_seconds(name: str, half: str, mode: str, calls: int = 50) -> float:
    import torch

    from wmsched.zoo.torch_models import MODELS as MAKES

    make, shape = MAKES[name]
    dtype = getattr(torch, half)
    module = make().eval().to("cuda", dtype)
    data = torch.randn(shape, device="cuda", dtype=dtype)
    compiled = torch.compile(module, mode=mode)
    with torch.no_grad():
        for _ in range(5):
            compiled(data)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            compiled(data)
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=MAX_SECONDS - 20)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--kinds", default="", help="some of the kinds; by default all")
    parser.add_argument("--trials", type=int, default=16, help="of each kind of product")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--half", default="float16")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile; or max-autotune")
    parser.add_argument("--simulate", metavar="BOARD", default="", help="a board without which this is tried")
    options = parser.parse_args(arguments)
    board, simulated = options.simulate, bool(options.simulate)
    if not simulated:
        import torch

        if not torch.cuda.is_available():
            print("minutes: no GPU here (PyTorch sees none); --simulate BOARD rehearses", file=sys.stderr)
            return 2
        board = torch.cuda.get_device_name(0)
    kinds = tuple(one for one in KINDS if not options.kinds or one.name in options.kinds.split(","))
    names = tuple(filter(None, options.models.split(",")))
    makes = {
        "numbers": lambda: numbers(kinds, board, simulated=simulated),
        "products": lambda: products(kinds, board, options.trials, simulated=simulated),
        "models": lambda: models(
            names, options.half, options.seconds * STAGES["models"] / 120 / max(1, len(names)), options.mode
        ),
    }
    start, bad, speedups = time.monotonic(), 0, []
    until = 0.0
    for stage, share in STAGES.items():
        until += share * options.seconds
        if stage not in options.stages.split(",") or (simulated and stage == "models"):
            continue
        for line in makes[stage]():
            told = {"stage": stage, "board": board, "at": round(time.monotonic() - start, 1), **line}
            told |= {"simulated": True} if simulated else {}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
            print(json.dumps(told), flush=True)
            bad += line["status"] in ("wrong", "failed")
            speedups += [line["speedup"]] if "speedup" in line else []
            if time.monotonic() - start > until:
                print(f"minutes: {stage} is cut short", file=sys.stderr)
                break
    if speedups:
        print(f"over PyTorch in the same type, geometric mean of {len(speedups)}: {geomean(speedups):.2f}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
