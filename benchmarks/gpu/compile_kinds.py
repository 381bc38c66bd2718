"""Compile schedules of every kind for every architecture, without a GPU.

    python -m benchmarks.gpu.compile_kinds --out benchmarks/results/gpu-compiles.jsonl

A line for each kind, architecture and design space: how many random schedules of it MetaSchedule's
postprocessors take, how many of these NVRTC compiles, and what their kernels take: registers and stack as
the compiler wrote them into the machine code, and shared memory as TVM laid it out. Products have their
tensor-core spaces, other programs all of theirs, and an attention its one kernel. Nothing here runs on a
GPU. Kinds that the file has already for an architecture are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu.attentions import ATTENTIONS, AttentionKind
from benchmarks.gpu.kinds import Kind
from benchmarks.gpu.programs import EVERY, Program
from benchmarks.operators.lines import read

BOARDS = {"sm_75": "T4", "sm_80": "A100", "sm_89": "RTX 4090", "sm_90": "H100", "sm_120": "RTX 5090"}
MAX_DRAWS = 200  # of a space, to find the schedules that are wanted
MAX_REGISTERS = 255  # of a thread


def context_of(kind: Kind | Program, board: str) -> tuple[Any, list[Any]]:
    """Return the tuning context of a kind on a board, and its design spaces."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from wmsched.codegen.tf32 import KEY
    from wmsched.features.gpus import cuda_target
    from wmsched.metaschedule.intrinsics import import_intrinsics
    from wmsched.metaschedule.rules import space_generator

    about: dict[str, Any] = cuda_target(board)
    if isinstance(kind, Kind) and kind.dtype == "float32":
        about["keys"] = ["cuda", "gpu", KEY]
    target = tvm.target.Target(tvm.target.Target(about), host={"kind": "llvm", "num-cores": 1})
    import_intrinsics(target)
    module = tvm.IRModule({"main": kind.function().with_attr("global_symbol", "main")})
    context = ms.TuneContext(
        module,
        target=target,
        space_generator=space_generator(target),
        search_strategy=ms.search_strategy.EvolutionarySearch(),
        num_threads=1,
        rand_state=1,
        task_name=kind.name,
    )
    return context, list(context.generate_design_space())


def is_tensor_core(design: Any) -> bool:
    """Return whether a design space is for tensor cores."""
    from wmsched.metaschedule.rules.tensor_cores import is_tensor_core as of_trace

    return of_trace(design.trace)


def spaces_of(kind: Kind | Program, designs: list[Any]) -> list[tuple[int, Any]]:
    """Return the places and the spaces of a kind that are looked at: of products those for tensor cores."""
    return [
        (place, design)
        for place, design in enumerate(designs)
        if not isinstance(kind, Kind) or is_tensor_core(design)
    ]


def is_expected(kind: Kind | Program | AttentionKind, arch: str) -> bool:
    """Return whether an architecture has the tensor cores of a kind; true of kinds without."""
    from wmsched.features.gpus import TENSOR_CORES

    if isinstance(kind, Program) or (
        isinstance(kind, AttentionKind) and kind.dtype == "float32" and not kind.tf32
    ):
        return True
    return int(arch.removeprefix("sm_")) / 10 >= TENSOR_CORES[kind.dtype]


def drawn(context: Any, design: Any, seed: int) -> Any:
    """Return a random schedule of a space with MetaSchedule's postprocessors; None if they refuse it."""
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import Trace

    trace = design.trace.simplified(remove_postproc=True)
    schedule = Schedule(context.mod, seed=seed, debug_mask=0, error_render_level="none", enable_check=False)
    Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
    schedule.enter_postproc()
    rules = context.space_generator.postprocs
    return schedule if all(rule.apply(schedule) for rule in rules) else None


@contextmanager
def shared_memory() -> Iterator[list[int]]:
    """A list of the bytes of shared memory that each kernel built in the block takes."""
    import tvm
    from tvm import s_tir, tirx

    from wmsched.codegen.tir_reader import visit_nodes

    merge, found = s_tir.transform.MergeSharedMemoryAllocations, []

    def see(node: Any) -> None:
        if isinstance(node, tirx.AllocBuffer) and str(node.buffer.scope()).startswith("shared"):
            size = int(node.buffer.shape[0]) * tvm.DataType(str(node.buffer.dtype)).bits // 8
            found.append(size)

    @tvm.transform.module_pass(opt_level=0, name="SeeSharedMemory")
    def look(module: Any, _: Any) -> Any:
        for function in module.functions.values():
            if isinstance(function, tirx.PrimFunc):
                visit_nodes(function.body, see)
        return module

    s_tir.transform.MergeSharedMemoryAllocations = lambda: tvm.transform.Sequential([merge(), look])
    try:
        yield found
    finally:
        s_tir.transform.MergeSharedMemoryAllocations = merge


def source_of(schedule: Any, target: Any) -> tuple[str, int]:
    """Return a schedule's CUDA source, and the most shared memory that a kernel of it takes."""
    from wmsched.metaschedule.measure.builder import build

    with shared_memory() as sizes:
        built = build(schedule.mod, target)
    (device,) = (built.mod if hasattr(built, "mod") else built).imports
    return str(device.inspect_source()), max(sizes, default=0)


def compile_attention(kind: AttentionKind, arch: str) -> dict[str, Any]:
    """Return the line of an attention's kernel."""
    from benchmarks.gpu.cubins import cubin, resources

    start = time.perf_counter()
    schedule, target = kind.scheduled(BOARDS[arch])
    line: dict[str, Any] = {"kind": kind.name, "arch": arch, "space": 0, "drawn": 1, "valid": 1}
    line |= {"tensor_cores": kind.tf32 or kind.dtype != "float32", "compiled": 0, "spilled": 0}
    line |= {"asynchronous": arch != "sm_75", "registers": 0, "shared": 0, "errors": []}
    try:
        source, shared = source_of(schedule, target)
        (kernel,) = resources(cubin(source, arch)).values()
    except Exception as error:  # of TVM or NVRTC; there is no common base
        line |= {"within_limits": False, "errors": [str(error).strip()[-300:]]}
    else:
        line |= {"compiled": 1, "spilled": int(kernel.stack > 0), "registers": kernel.registers}
        line["shared"] = shared + kernel.shared
        limit = int(target.attrs["max_shared_memory_per_block"])
        line["within_limits"] = line["shared"] <= limit and kernel.registers <= MAX_REGISTERS
    return line | {"seconds": round(time.perf_counter() - start, 2)}


def compile_kind(kind: Kind | Program | AttentionKind, arch: str, wanted: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each space of a kind."""
    from benchmarks.gpu.cubins import cubin, resources

    if isinstance(kind, AttentionKind):
        yield compile_attention(kind, arch)
        return
    context, designs = context_of(kind, BOARDS[arch])
    limit = int(context.target.attrs["max_shared_memory_per_block"])
    for place, design in spaces_of(kind, designs):
        line: dict[str, Any] = {"kind": kind.name, "arch": arch, "space": place, "asynchronous": False}
        line["tensor_cores"] = is_tensor_core(design)
        line |= {"drawn": 0, "valid": 0, "compiled": 0, "spilled": 0, "registers": 0, "shared": 0}
        line["async_stages"] = str(design.trace).count("software_pipeline_async_stages")
        errors = []
        start = time.perf_counter()
        for seed in range(1, MAX_DRAWS + 1):
            if line["valid"] == wanted:
                break
            line["drawn"] += 1
            schedule = drawn(context, design, seed)
            if schedule is None:
                continue
            line["valid"] += 1
            try:
                source, shared = source_of(schedule, context.target)
                kernels = resources(cubin(source, arch)).values()
            except Exception as error:  # of TVM or NVRTC; there is no common base
                errors.append(str(error).strip()[-300:])
                continue
            line["compiled"] += 1
            line["asynchronous"] |= "cp_async" in source or "cp.async" in source
            line["spilled"] += any(one.stack for one in kernels)
            line["registers"] = max(line["registers"], *(one.registers for one in kernels))
            line["shared"] = max(line["shared"], shared)
        line["within_limits"] = line["shared"] <= limit and line["registers"] <= MAX_REGISTERS
        yield line | {"seconds": round(time.perf_counter() - start, 2), "errors": errors}


def is_whole(kind: Kind | Program | AttentionKind, lines: list[dict[str, Any]]) -> bool:
    """Return whether a kind's lines for an architecture say that it compiles there within the limits.

    Each tensor-core space of a product has a schedule. Of another program's spaces one has: few are valid.
    """
    valid = [line["valid"] > 0 for line in lines]
    return (
        bool(lines)
        and (any(valid) if isinstance(kind, Program) else all(valid))
        and all(line["compiled"] == line["valid"] and line["within_limits"] for line in lines)
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archs", default=",".join(BOARDS), help="such as sm_80,sm_90")
    parser.add_argument("--kinds", default="", help="some of the kinds; by default all")
    parser.add_argument("--schedules", type=int, default=3, help="of each space")
    parser.add_argument("--out", type=Path, help="file that a line is added to")
    options = parser.parse_args(arguments)
    from benchmarks.gpu.cubins import supported
    from wmsched.base.errors import WmschedError

    try:
        known = supported()
    except WmschedError as error:
        print(f"compile_kinds: {error}", file=sys.stderr)
        return 2
    failed = 0
    there = {(line["kind"], line["arch"]) for line in (read(options.out) if options.out else [])}
    for arch in options.archs.split(","):
        if arch not in known:
            print(f"{arch}: this NVRTC does not know it", file=sys.stderr)
            continue
        for kind in (*EVERY, *ATTENTIONS):
            wanted = not options.kinds or kind.name in options.kinds.split(",")
            if not wanted or (kind.name, arch) in there or not is_expected(kind, arch):
                continue
            lines = list(compile_kind(kind, arch, options.schedules))
            failed += not is_whole(kind, lines)
            text = "".join(json.dumps(line) + "\n" for line in lines)
            print(text, end="", flush=True)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:  # at once: a kill leaves whole kinds
                    file.write(text)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
