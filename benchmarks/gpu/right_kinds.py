"""Numbers of GPU schedules of every kind, computed on the processor: no GPU and no NVRTC is needed.

    python -m benchmarks.gpu.right_kinds --out benchmarks/results/gpu-right.jsonl

A line for each kind and design space: a random schedule that MetaSchedule's postprocessors take is run on
random operands, and compared with numpy or PyTorch in float32. Tensor-core schedules and attentions run as
the very CUDA source that NVRTC gets, thread by thread, in both orders of the threads. Other schedules run
as their TensorIR, with threads as loops. Kinds that the file has already are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import cuda_on_cpu
from benchmarks.gpu.attentions import SMALL_ATTENTIONS, AttentionKind
from benchmarks.gpu.compile_kinds import BOARDS, context_of, drawn, is_tensor_core, source_of, spaces_of
from benchmarks.gpu.kinds import Kind
from benchmarks.gpu.programs import EVERY_SMALL, Program
from benchmarks.gpu.serial import run_serial
from benchmarks.operators.lines import read
from wmsched.codegen.tf32 import rounded

ARCH = "sm_80"  # has every type and asynchronous copies
MAX_DRAWS = 400
#: Of the largest output, by its type: a rounding, and what sums in another order differ by.
MOST = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5}
MOST_TF32 = 2e-3  # of an attention whose shares are rounded to ten bits
SOURCE, TIR = "source", "tir"


def off_by(kind: Kind | Program, schedule: Any, target: Any, *, folder: Path) -> tuple[str, float]:
    """Return how a schedule was run, and its largest error over the largest output.

    Parameters
    ----------
    folder : Path
        Of this schedule alone: a process loads a library of one path once.
    """
    function, rng = kind.function(), np.random.default_rng(1)
    names = [str(parameter.name) for parameter in function.params]
    arrays, values = {}, []
    for name, parameter in zip(names, function.params):
        shape, dtype = [int(n) for n in parameter.shape], str(parameter.dtype)
        arrays[name] = cuda_on_cpu.as_bits(rng.standard_normal(shape), dtype)
        values.append(cuda_on_cpu.as_floats(arrays[name], dtype).reshape(shape))
    is_tf32 = isinstance(kind, Kind) and kind.dtype == "float32"
    given = [rounded(one) for one in values[:-1]] if is_tf32 else values[:-1]
    expected, output = kind.reference(*given), names[-1]
    worst = 0.0
    how = SOURCE if is_tensor_core(schedule) else TIR
    source = source_of(schedule, target)[0] if how == SOURCE else ""
    for reverse in (False, True) if source else (False,):
        arrays[output][...] = 0
        if source:
            cuda_on_cpu.run(source, schedule.mod, arrays, folder, reverse=reverse)
        else:
            run_serial(schedule.mod, [arrays[name] for name in names], function)
        found = cuda_on_cpu.as_floats(arrays[output], kind.out).reshape(expected.shape)
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    return how, worst if np.isfinite(worst) else float("inf")


def check_attention(kind: AttentionKind, arch: str, most: float) -> dict[str, Any]:
    """Return the line of an attention's kernel, which may be so far off."""
    start = time.perf_counter()
    line: dict[str, Any] = {"kind": kind.name, "arch": arch, "space": 0, "out": kind.out, "valid": 1}
    try:
        schedule, target = kind.scheduled(BOARDS[arch])
        off = kind.off_by(source_of(schedule, target)[0], schedule.mod)
        line |= {"how": SOURCE, "difference": off, "right": off <= most}
    except Exception as error:  # of TVM or g++; there is no common base
        line |= {"right": False, "error": str(error).strip()[-300:]}
    return line | {"seconds": round(time.perf_counter() - start, 2)}


def check_kind(kind: Kind | Program | AttentionKind, arch: str) -> Iterator[dict[str, Any]]:
    """Yield a line for each space of a kind that has a valid schedule."""
    if isinstance(kind, AttentionKind):
        most = max(MOST[kind.out], MOST[kind.dtype], MOST_TF32 if kind.tf32 else 0.0)
        yield check_attention(kind, arch, most)
        return
    context, designs = context_of(kind, BOARDS[arch])
    for place, design in spaces_of(kind, designs):
        start = time.perf_counter()
        found = (drawn(context, design, seed) for seed in range(1, MAX_DRAWS + 1))
        schedule = next((one for one in found if one is not None), None)
        line: dict[str, Any] = {"kind": kind.name, "arch": arch, "space": place, "out": kind.out}
        line["async_stages"] = str(design.trace).count("software_pipeline_async_stages")
        if schedule is None:
            yield line | {"valid": 0}
            continue
        line["valid"] = 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                how, off = off_by(kind, schedule, context.target, folder=Path(folder))
            line |= {"how": how, "difference": off, "right": off <= MOST[kind.out]}
        except Exception as error:  # of TVM or g++; there is no common base
            line |= {"right": False, "error": str(error).strip()[-300:]}
        yield line | {"seconds": round(time.perf_counter() - start, 2)}


def is_right(kind: Kind | Program | AttentionKind, lines: list[dict[str, Any]]) -> bool:
    """Return whether a kind's lines say that all its spaces compute what they are to compute.

    Each tensor-core space of a product has a schedule. Of another program's spaces one has: few are valid.
    """
    valid = [line["valid"] > 0 for line in lines]
    there = any(valid) if isinstance(kind, Program) else all(valid)
    return bool(lines) and there and all(line["right"] for line in lines if line["valid"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default=ARCH, choices=BOARDS)
    parser.add_argument("--kinds", default="", help="some of the kinds; by default all")
    parser.add_argument("--out", type=Path, help="file that a kind's lines are added to")
    options = parser.parse_args(arguments)
    known = {(line["kind"], line["arch"]) for line in (read(options.out) if options.out else [])}
    wrong = 0
    for kind in (*EVERY_SMALL, *SMALL_ATTENTIONS):
        wanted = not options.kinds or kind.name in options.kinds.split(",")
        if not wanted or (kind.name, options.arch) in known:
            continue
        lines = list(check_kind(kind, options.arch))
        wrong += not is_right(kind, lines)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        print(text, end="", flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:  # a kind at once: a kill leaves whole ones
                file.write(text)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
