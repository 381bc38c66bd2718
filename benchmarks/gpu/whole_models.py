"""Whole models of `benchmarks.gpu.minutes`: tuned by wmsched, and compiled by PyTorch in another process.

    python -m benchmarks.gpu.whole_models resnet50 --half float16 --mode max-autotune      # PyTorch's alone

A rehearsal without a GPU does all but the launches: it exports each model, by default its first layers alone,
halves it, constructs schedules of all functions by the model, has NVRTC compile them, and writes the library.
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
from wmsched.tune.folder import FUNCTIONS

FALLBACK = "reduce-overhead"  # of torch.compile where "max-autotune" takes too long
ROUNDS, CALLS = 3, 50
SEARCH_SHARE, OUR_SHARE = 0.3, 0.65  # of a model's seconds: our search, and all of ours with its builds


def exported(name: str, folder: Path, *, shallow: bool = False) -> Path:
    """Write a model as a .pt2 file, and return its path."""
    import torch

    module, inputs = made(name, shallow=shallow)
    path = folder / f"{name}.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(module, inputs), path)
    return path


def rehearsed(name: str, half: str, board: str, mode: str, *, shallow: bool) -> dict[str, Any]:
    """Return the line of a model that is compiled for a board, and not run."""
    with tempfile.TemporaryDirectory() as folder:
        out, file = Path(folder) / "out", exported(name, Path(folder), shallow=shallow)
        try:
            check_commands(tune_command(file, half, 1.0, out), anchor_command(name, half, mode))
        except ValueError as wrong:
            return {"status": "failed", "error": str(wrong)}
        command = ["compile", str(file), "--target", json.dumps(cuda_target(board))]
        command += ["--traversal", "draw"] if shallow else []  # it is the steps that are rehearsed
        start = time.perf_counter()
        error, told = _wmsched([*command, *_half(half), "--out", str(out)], out, limit=None)
        if error:
            return {"status": "failed", "error": error}
        ways: dict[str, int] = {}
        for task in told["tasks"]:
            ways[task["how"]] = ways.get(task["how"], 0) + 1
        return {
            "status": "built",
            "shallow": shallow,
            "functions": len(told["tasks"]),
            "attentions": _attentions(out / FUNCTIONS),
            "schedules": ways,
            "bytes": (out / told["library"]["file"]).stat().st_size,
            "construct_seconds": told["construct_seconds"],
            "total_seconds": round(time.perf_counter() - start, 1),
            "commands": "read",
        }


def _attentions(path: Path) -> int:
    """Return how many of a library's functions are attentions as one kernel, by its file of functions."""
    functions = json.loads(path.read_text(encoding="utf-8"))
    return sum(one["what"].startswith("attention of ") for one in functions.values())


def timed(name: str, half: str, seconds: float, mode: str) -> dict[str, Any]:
    """Return the line of a model, tuned and run here in at most so many seconds, and PyTorch's beside."""
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = tune_command(exported(name, Path(folder)), half, SEARCH_SHARE * seconds, out)
        error, told = _wmsched(command, out, limit=OUR_SHARE * seconds)
    line: dict[str, Any] = {"status": "failed", "error": error} if error else {"status": "ok"}
    if not error:
        line |= {key: told[key] for key in ("seconds", "difference", "cuda_graph")}
    line |= _anchor(name, half, mode, until - time.monotonic())
    if not error and "torch_compile" in line:
        line["speedup"] = line["torch_compile"] / told["seconds"]["tuned"]
    return line


def tune_command(file: Path, half: str, seconds: float, out: Path) -> list[str]:
    """Return the arguments of `wmsched` that tune a model on this machine's GPU in so many seconds."""
    command = ["tune", str(file), "--scheduler", "meta", "--target", "cuda", *_half(half)]
    return [*command, "--minutes", f"{seconds / 60:.2f}", "--out", str(out)]


def anchor_command(name: str, half: str, mode: str) -> list[str]:
    """Return the arguments of this module that time torch.compile."""
    return [name, "--half", half, "--mode", mode]


def check_commands(tune: Sequence[str], anchor: Sequence[str]) -> None:
    """Raise ValueError unless the commands are read by their parsers and name a file that is there."""
    import typer

    from wmsched.cli.main import app

    if not Path(tune[1]).is_file():
        raise ValueError(f"{tune[1]}: wmsched {tune[0]} has no such file; export the model first")
    group: Any = typer.main.get_command(app)
    wrong: Any = (
        typer.BadParameter.__base__
    )  # a usage error of the parser that typer has, which is no public name
    try:
        with typer.Context(group, info_name="wmsched") as context:
            group.get_command(context, tune[0]).make_context(tune[0], list(tune[1:]), parent=context)
        _parser().parse_args(list(anchor))
    except (wrong, SystemExit) as error:
        raise ValueError(f"a command is not read: {error}: {[*tune]} or {[*anchor]}") from error


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
        command = [sys.executable, "-m", "benchmarks.gpu.whole_models", *anchor_command(name, half, asked)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=max(1.0, share * seconds)
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

    dtype = torch.float32 if half == "tf32" else getattr(torch, half)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = half == "tf32"
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--half", default="float16", choices=("float16", "bfloat16", "tf32", "float32"))
    parser.add_argument("--mode", default="max-autotune", help="of torch.compile")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    import torch

    if not torch.cuda.is_available():
        print("whole_models: no GPU here (PyTorch sees none)", file=sys.stderr)
        return 2
    seconds = compiled_seconds(options.name, options.half, options.mode)
    print(json.dumps({"torch_compile": seconds, "mode": options.mode}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
