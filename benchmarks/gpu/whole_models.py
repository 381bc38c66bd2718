"""Whole models of `benchmarks.gpu.minutes`: tuned by wmsched, and compiled by PyTorch in another process.

    python -m benchmarks.gpu.whole_models resnet50 --half float16 --mode max-autotune      # PyTorch's alone

A rehearsal without a GPU does all but the launches: it exports each model, halves it, constructs schedules of
all functions by the model, has NVRTC compile them, and writes the library.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.models import MODELS, made
from wmsched.features.gpus import cuda_target

FALLBACK = "reduce-overhead"  # of torch.compile where "max-autotune" takes too long
ROUNDS, CALLS = 3, 50


def exported(name: str, folder: Path) -> Path:
    """Write a model as a .pt2 file, and return its path."""
    import torch

    module, inputs = made(name)
    path = folder / f"{name}.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(module, inputs), path)
    return path


def rehearsed(name: str, half: str, board: str) -> dict[str, Any]:
    """Return the line of a model that is compiled for a board, and not run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["compile", str(exported(name, Path(folder))), "--target", json.dumps(cuda_target(board))]
        start = time.perf_counter()
        error, told = _wmsched([*command, *_half(half), "--out", str(out)], out, limit=None)
        if error:
            return {"status": "failed", "error": error}
        ways: dict[str, int] = {}
        for task in told["tasks"]:
            ways[task["how"]] = ways.get(task["how"], 0) + 1
        return {
            "status": "built",
            "functions": len(told["tasks"]),
            "schedules": ways,
            "bytes": (out / told["library"]["file"]).stat().st_size,
            "construct_seconds": told["construct_seconds"],
            "total_seconds": round(time.perf_counter() - start, 1),
        }


def timed(name: str, half: str, seconds: float, mode: str) -> dict[str, Any]:
    """Return the line of a model, tuned and run here in about so many seconds, and PyTorch's beside."""
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["tune", str(exported(name, Path(folder))), "--scheduler", "meta", "--target", "cuda"]
        command += [*_half(half), "--minutes", f"{seconds / 120:.2f}", "--out", str(out)]
        error, told = _wmsched(command, out, limit=2 * seconds)
    line: dict[str, Any] = {"status": "failed", "error": error} if error else {"status": "ok"}
    if not error:
        line |= {key: told[key] for key in ("seconds", "difference", "cuda_graph")}
    line |= _anchor(name, half, mode, max(20.0, until - time.monotonic()))
    if not error and "torch_compile" in line:
        line["speedup"] = line["torch_compile"] / told["seconds"]["tuned"]
    return line


def _half(half: str) -> list[str]:
    return [] if half == "float32" else ["--half", half]


def _wmsched(arguments: Sequence[str], out: Path, *, limit: float | None) -> tuple[str, dict[str, Any]]:
    """Return an error's text or "", and the report."""
    command = [sys.executable, "-m", "wmsched", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"it takes more than {limit:.0f} s", {}
    report = out / "report.json"
    if done.returncode or not report.is_file():
        return (done.stderr or done.stdout).strip()[-800:] or f"exit status {done.returncode}", {}
    return "", json.loads(report.read_text(encoding="utf-8"))


def _anchor(name: str, half: str, mode: str, seconds: float) -> dict[str, Any]:
    """Return torch.compile's seconds and its mode; the reason where there are none."""
    why = ""
    for asked, share in ((mode, 0.7), (FALLBACK, 0.3)) if mode != FALLBACK else ((mode, 1.0),):
        command = [sys.executable, "-m", "benchmarks.gpu.whole_models", name, "--half", half, "--mode", asked]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=max(10.0, share * seconds)
            )
        except subprocess.TimeoutExpired:
            why = f"{asked} takes more than {share * seconds:.0f} s"
            continue
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        why = done.stderr.strip()[-400:]
    return {"no_torch_compile": why}


def compiled_seconds(name: str, half: str, mode: str) -> float:
    """Return the seconds of a call that torch.compile has made; both modes replay CUDA graphs."""
    import torch

    dtype = getattr(torch, half)
    module, inputs = made(name)
    module = module.to("cuda", dtype)
    data = [one.to("cuda", dtype) for one in inputs]
    call = torch.compile(module, mode=mode)
    best = float("inf")
    with torch.no_grad():
        for _ in range(5):
            call(*data)
        for _ in range(ROUNDS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call(*data)
            torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--half", default="float16")
    parser.add_argument("--mode", default="max-autotune", help="of torch.compile")
    options = parser.parse_args(arguments)
    import torch

    if not torch.cuda.is_available():
        print("whole_models: no GPU here (PyTorch sees none)", file=sys.stderr)
        return 2
    seconds = compiled_seconds(options.name, options.half, options.mode)
    print(json.dumps({"torch_compile": seconds, "mode": options.mode}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
