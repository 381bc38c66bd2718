"""Half precision on a GPU in at most eight minutes: numbers and whole models, beside PyTorch.

    python -m benchmarks.gpu.minutes --out half.jsonl                     # on a machine with an NVIDIA GPU
    python -m benchmarks.gpu.minutes --wheels DIR --out half.jsonl        # one that has no TVM and no network
    python -m benchmarks.gpu.minutes --simulate "RTX 4090" --out try.jsonl    # a rehearsal without a GPU

Each line is written when it is known, and the same command goes on where the file ends: a run that is cut
short keeps what it has. No step begins that would not end in time. Stages:

- numbers: attentions as one kernel, and a schedule of each tensor-core space of each kind of product, run
  once, compared with PyTorch's float32, and timed; attentions beside PyTorch's own in the same type;
- models: `wmsched tune`, beside torch.compile of the model in the same type, with CUDA graphs; `--mode
  max-autotune` tunes its kernels too, for minutes a model;
- products, where asked for: each kind tuned with few trials, beside PyTorch's own kernel in the same type, as
  a CUDA graph.

A rehearsal takes a made-up GPU and does everything but the launches: it draws, builds and, where NVRTC is,
compiles the same schedules, searches with invented times, writes each model's library, and has the commands
of the models read by their own parsers. So that it ends in minutes, it takes a few kinds and each model's
first layers; `--whole` takes all. Its lines say "simulated", and their times of products mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.attentions import ATTENTIONS, AttentionKind
from benchmarks.gpu.compile_kinds import context_of, drawn, is_tensor_core, source_of
from benchmarks.gpu.kinds import KINDS, Kind

Known = Callable[..., bool]  # whether a line of a stage, with these names, is in the file already
#: Shares of the time of those that are asked for, in their order.
STAGES = {"numbers": 0.1, "models": 0.9, "products": 0.3}
DEFAULT_STAGES = "numbers,models"
MIN_MODEL_SECONDS = 40.0  # a model is not begun with less
MAX_SECONDS = 480
#: What is looked at by default: a few attentions, as a compilation takes seconds, and on a GPU all products.
FEW_ATTENTIONS = ("attention", "attention-causal", "attention-bf16", "attention-40", "attention-fp32")
REHEARSED = ("dense", "values", *FEW_ATTENTIONS[:2])
MAX_DRAWS = 200  # a space of TF32 takes over 100
MOST = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-4}  # of the largest output, by its type
MOST_TF32 = 2e-3  # of an attention's


def numbers(
    kinds: Sequence[Kind], attentions: Sequence[AttentionKind], board: str, *, simulated: bool, known: Known
) -> Iterator[dict[str, Any]]:
    """Yield a line for each attention, and for a schedule of each space of the products."""
    for one in attentions:
        if known("numbers", one.name):
            continue
        line: dict[str, Any] = {"kind": one.name, "space": 0}
        try:
            yield line | (_compiled if simulated else _attended)(one, *one.scheduled(board))
        except Exception as error:  # of TVM, NVRTC or the driver; there is no common base
            yield line | {"status": "failed", "error": str(error).strip()[-400:]}
    for kind in kinds:
        if known("numbers", kind.name):
            continue
        context, designs = context_of(kind, board)
        for space, design in enumerate(designs):
            if not is_tensor_core(design):
                continue
            line = {"kind": kind.name, "space": space}
            found = (drawn(context, design, seed) for seed in range(1, MAX_DRAWS + 1))
            schedule = next((one for one in found if one is not None), None)
            if schedule is None:
                yield line | {"status": "no schedule"}
                continue
            try:
                yield line | (_compiled if simulated else _ran)(kind, schedule, context.target)
            except Exception as error:  # of TVM, NVRTC or the driver; there is no common base
                yield line | {"status": "failed", "error": str(error).strip()[-400:]}


def _compiled(kind: Kind | AttentionKind, schedule: Any, target: Any) -> dict[str, Any]:
    from benchmarks.gpu.cubins import cubin, resources, supported
    from wmsched.base.errors import EnvironmentProblem

    source, shared = source_of(schedule, target)
    try:
        supported()
    except EnvironmentProblem:
        return {"status": "source", "shared": shared}
    kernels = resources(cubin(source, str(target.attrs["arch"]))).values()
    shared += max(one.shared for one in kernels)
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


def _attended(kind: AttentionKind, schedule: Any, target: Any) -> dict[str, Any]:
    """Return what an attention's kernel computes and takes on the GPU, and what PyTorch's takes."""
    import numpy as np
    import torch
    import tvm

    from wmsched.metaschedule.measure.builder import build

    dtype, out = getattr(torch, kind.dtype), getattr(torch, kind.out)
    made = kind.operands(np.random.default_rng(1))
    tensors = {name: torch.from_numpy(data).to("cuda", dtype) for name, data in made.items()}
    found = torch.zeros(kind.attention().out.shape, device="cuda", dtype=out)
    run = build(schedule.mod, target)
    given = [tvm.runtime.from_dlpack(one) for one in (*tensors.values(), found)]
    run["main"](*given)
    given[-1].device.sync()
    torch.backends.cuda.matmul.allow_tf32 = kind.tf32
    four = [torch.as_tensor(kind.four(name, tensors[name])) for name in "qkv"]
    mask = tensors.get("mask")
    if kind.causal is not None:
        rows, keys = kind.shape[2:4]
        later = torch.ones(rows, keys, dtype=torch.bool, device="cuda").triu(kind.causal + 1)
        order = torch.zeros(rows, keys, dtype=dtype, device="cuda").masked_fill(later, -math.inf)
        mask = order if mask is None else mask + order
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = attend(*(one.float() for one in four), attn_mask=None if mask is None else mask.float())
    off = _difference(found.float(), expected.nan_to_num().transpose(1, 2).reshape(found.shape))
    seconds = run.time_evaluator("main", given[-1].device, number=20, repeat=3)(*given).mean
    plain = kind.causal == 0 and kind.shape[2] == kind.shape[3] and not kind.masked
    how: dict[str, Any] = {"is_causal": True} if plain else {"attn_mask": mask}
    pytorch = _graph_seconds(lambda: attend(*four, **how))
    status = (
        "ok" if off <= max(MOST[kind.out], MOST[kind.dtype], MOST_TF32 if kind.tf32 else 0.0) else "wrong"
    )
    line = {"status": status, "difference": off, "seconds": seconds, "tflops": kind.flops / seconds / 1e12}
    return line | {"pytorch": pytorch, "over_pytorch": pytorch / seconds}


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
    kinds: tuple[Kind, ...], board: str, trials: int, *, simulated: bool, known: Known
) -> Iterator[dict[str, Any]]:
    """Yield a line for each kind, tuned."""
    from benchmarks.tune.meta.simulated import MODEL, machine, timing
    from wmsched.metaschedule.tune import tune_tir

    for kind in kinds:
        if known("products", kind.name):
            continue
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


def models(
    names: Sequence[str],
    halves: Sequence[str],
    left: Callable[[], float],
    mode: str,
    board: str,
    *,
    simulated: bool,
    known: Known,
    shallow: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield a line for each model in each type; `left` returns the seconds that there are yet.

    A rehearsal's may be `shallow`.
    """
    from benchmarks.gpu.whole_models import rehearsed, timed

    wanted = [(name, half) for half in halves for name in names if not known("models", name, half)]
    for place, (name, half) in enumerate(wanted):
        if simulated:
            told = rehearsed(name, half, board, mode, shallow=shallow)
        elif (seconds := left()) < MIN_MODEL_SECONDS:
            print(
                f"minutes: {len(wanted) - place} models are left; the same command goes on", file=sys.stderr
            )
            return
        else:
            share = max(MIN_MODEL_SECONDS, seconds / (len(wanted) - place))
            told = timed(name, half, min(share, seconds), mode)
        yield {"model": name, "half": half, **told}


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def done(path: Path, board: str, *, simulated: bool) -> tuple[Known, list[dict[str, Any]]]:
    """Return whether a line is in a file, as a function, and the file's lines of this board.

    A kind's or model's lines count if none of them failed: what failed is tried again.
    """
    found = []
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:  # cut off when a run was killed
                continue
            if line.get("board") == board and bool(line.get("simulated")) == simulated:
                found.append(line)
    state: dict[tuple[str, ...], bool] = {}
    for line in found:
        key = (line["stage"], *(line[part] for part in ("kind", "model", "half") if part in line))
        state[key] = state.get(key, True) and line["status"] not in ("failed", "wrong")
    return lambda *key: state.get(key, False), found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file that lines are added to")
    parser.add_argument("--seconds", type=float, default=MAX_SECONDS - 20)
    parser.add_argument("--stages", default=DEFAULT_STAGES, help=f"of {', '.join(STAGES)}")
    parser.add_argument(
        "--kinds", default="", help="some of the kinds; by default products and a few attentions"
    )
    parser.add_argument("--trials", type=int, default=16, help="of each kind of product")
    parser.add_argument("--models", default="", help="some of the models; by default all")
    parser.add_argument(
        "--half", default="float16", help="types of the models, in turn: float16,tf32,float32"
    )
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile; or max-autotune")
    parser.add_argument("--wheels", type=Path, help="folder of wheels, or parts of them, to install first")
    parser.add_argument("--simulate", metavar="BOARD", default="", help="a board without which this is tried")
    parser.add_argument("--whole", action="store_true", help="rehearse all kinds, and models with all layers")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    if options.wheels is not None:
        from benchmarks.gpu.carried import install

        install(options.wheels)
    board, simulated = options.simulate, bool(options.simulate)
    if not simulated:
        import torch

        if not torch.cuda.is_available():
            print("minutes: no GPU here (PyTorch sees none); --simulate BOARD rehearses", file=sys.stderr)
            return 2
        board = torch.cuda.get_device_name(0)
    from benchmarks.gpu.models import MODELS

    shallow = simulated and not options.whole
    wanted = options.kinds.split(",") if options.kinds else REHEARSED if shallow else ()
    kinds = tuple(one for one in KINDS if not wanted or one.name in wanted)
    few = wanted or ([one.name for one in ATTENTIONS] if options.whole else FEW_ATTENTIONS)
    attentions = [one for one in ATTENTIONS if one.name in few]
    names = [name for name in MODELS if not options.models or name in options.models.split(",")]
    halves = options.half.split(",")
    known, before = done(options.out, board, simulated=simulated)
    how: dict[str, Any] = {"simulated": simulated, "known": known}
    makes = {
        "numbers": lambda: numbers(kinds, attentions, board, **how),
        "products": lambda: products(kinds, board, options.trials, **how),
        "models": lambda: models(
            names,
            halves,
            lambda: until - (time.monotonic() - start),
            options.mode,
            board,
            **how,
            shallow=shallow,
        ),
    }
    bad = 0
    speedups = [line["speedup"] for line in before if "speedup" in line]
    until = 0.0
    asked = [stage for stage in STAGES if stage in options.stages.split(",")]
    for stage in asked:
        until += STAGES[stage] / sum(STAGES[one] for one in asked) * options.seconds
        for line in makes[stage]():
            told = {"stage": stage, "board": board, "at": round(time.monotonic() - start, 1), **line}
            told |= {"simulated": True} if simulated else {}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
            print(json.dumps(told), flush=True)
            bad += line["status"] in ("wrong", "failed")
            speedups += [line["speedup"]] if "speedup" in line else []
            if not simulated and time.monotonic() - start > until:
                print(f"minutes: {stage} is cut short; the same command goes on", file=sys.stderr)
                break
    if speedups:
        print(f"over PyTorch in the same type, geometric mean of {len(speedups)}: {geomean(speedups):.2f}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
