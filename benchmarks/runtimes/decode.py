"""`python -m benchmarks.runtimes.decode --folder DIR --out FILE`: a language model's step with a cache.

GPT-2 of 124 million random float32 weights takes one token with 128 in its cache: constructed by wmsched
with a static cache, in onnxruntime with past and present bound, and in PyTorch eager; each in a process of
its own, in turns. Each also continues one prompt greedily; the tokens are in its line. One JSON line a
runtime: kind "decode", `median` in microseconds. FILE is gone on with; what it has is not measured again.

`--prepare` exports and compiles what DIR lacks and measures nothing; it needs onnxscript. `--print` prints
the table of FILE.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results, read_all
from benchmarks.runtimes.busy import Child
from benchmarks.runtimes.turns import turns

KIND = "decode"
OURS, ORT, EAGER = "wmsched", "onnxruntime", "eager"
CHILD = Path(__file__).with_name("decode_child.py")
CACHE, STEPS = 128, 32  # tokens of the prompt, and behind it
ROUNDS, SECONDS = 7, 2.0  # turns of each runtime, and their length
SIZES: dict[str, dict[str, int]] = {
    "gpt2": {},
    "gpt2-tiny": {"n_layer": 2, "n_head": 4, "n_embd": 64, "vocab_size": 512},
}


def build(size: str) -> Any:
    """Return a GPT-2 with random weights, the same in each process."""
    import torch
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(**SIZES[size], bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    model.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": CACHE + STEPS},
    )
    return model


def prepare(folder: Path, size: str) -> None:
    """Write a model's program, its ONNX file and its tuned folder, as far as they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    program, onnx, tuned = folder / f"{size}.pt2", folder / f"{size}.onnx", folder / f"{size}.tuned"
    if not program.is_file():
        _program(size, program)
    if not onnx.is_file():
        _onnx(size, onnx)
    if not (tuned / "report.json").is_file():
        command = [sys.executable, "-m", "wmsched", "compile", str(program), "--out", str(tuned)]
        subprocess.run(command, check=True)


def _program(size: str, path: Path) -> None:
    import torch
    from transformers.integrations.executorch import convert_and_export_with_cache

    program = convert_and_export_with_cache(build(size))
    torch.export.save(program, path)


def _onnx(size: str, path: Path) -> None:
    """Write the step with its past as inputs and its present as outputs."""
    import torch
    from transformers import DynamicCache

    model = build(size)
    layers, heads = model.config.n_layer, model.config.n_head
    width = model.config.n_embd // heads

    class Step(torch.nn.Module):
        """One step of the model."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, position_ids: Any, past: list[Any]) -> Any:
            cache = DynamicCache(config=self.model.config)
            for layer in range(layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            found = self.model(input_ids, position_ids=position_ids, past_key_values=cache, use_cache=True)
            return found.logits, [part for one in cache.layers for part in (one.keys, one.values)]

    names = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    past = [torch.zeros(1, heads, CACHE, width) for _ in names]
    length = torch.export.Dim("past", min=2, max=1000)
    with torch.no_grad():
        torch.onnx.export(
            Step().eval(),
            (torch.tensor([[1]]), torch.tensor([[CACHE]]), past),
            str(path),
            dynamo=True,
            input_names=["input_ids", "position_ids", *(f"past_key_values.{name}" for name in names)],
            output_names=["logits", *(f"present.{name}" for name in names)],
            dynamic_shapes=({}, {}, [{2: length} for _ in names]),
        )


def measure(
    folder: Path, size: str, runtimes: Sequence[str], python: str, rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Lines of the runtimes: greedy tokens one after the other, then steps in turns."""
    paths = {
        OURS: folder / f"{size}.tuned",
        ORT: folder / f"{size}.onnx",
        EAGER: folder / f"{size}.pt2",
    }
    children = {name: Child(name, paths[name], python, script=CHILD) for name in runtimes}
    draw = random.Random(0)
    prompt = [draw.randrange(SIZES[size].get("vocab_size", 50257)) for _ in range(CACHE)]
    try:
        tokens = {name: child.ask([prompt, STEPS]) for name, child in children.items()}
        times = turns(children, rounds, seconds)
    finally:
        for child in children.values():
            child.close()
    for name, own in times.items():
        yield {
            "kind": KIND, "model": size, "runtime": name, "cache": CACHE,
            "median": round(statistics.median(own), 2),
            "turns": [round(one, 2) for one in own],
            "tokens": tokens[name][CACHE:],
        }  # fmt: skip


def over(lines: Sequence[dict[str, Any]], other: str, size: str = "gpt2") -> float:
    """How many times as fast as another runtime a step of ours is, the median of the turns' ratios.

    Raises
    ------
    ValueError
        A line is missing, or the two continue the prompt with other tokens.
    """
    last = {one["runtime"]: one for one in lines if one["kind"] == KIND and one["model"] == size}
    if not {OURS, other} <= set(last):
        raise ValueError(f"{size} was not decoded by {OURS} and {other} in its lines")
    if last[OURS]["tokens"] != last[other]["tokens"]:
        raise ValueError(f"{OURS} and {other} continue the prompt of {size} with other tokens")
    return statistics.median(
        theirs / ours for ours, theirs in zip(last[OURS]["turns"], last[other]["turns"], strict=True)
    )


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Milliseconds of a step by runtime, and whether the tokens are ours."""
    rows = []
    for size in dict.fromkeys(one["model"] for one in lines if one["kind"] == KIND):
        last = {one["runtime"]: one for one in lines if one["kind"] == KIND and one["model"] == size}
        ours = last.get(OURS, {}).get("tokens")
        for name, line in last.items():
            same = "" if name == OURS else "the same" if line["tokens"] == ours else "others"
            rows.append([size, name, f"{line['median'] / 1000:.2f}", same])
    head = ["model", "runtime", "a step, ms", f"{STEPS} greedy tokens"]
    return Table(title=f"A step with {CACHE} tokens of cache", head=head, rows=rows, note="")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes.decode", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--folder", type=Path, help="of models, exported and compiled")
    parser.add_argument("--out", type=Path, help="results file, JSON lines")
    parser.add_argument("--size", default="gpt2", choices=SIZES, help="(%(default)s)")
    parser.add_argument("--prepare", action="store_true", help="export and compile, and measure nothing")
    parser.add_argument("--print", action="store_true", help="print the table and measure nothing")
    parser.add_argument("--runtimes", default=",".join((OURS, ORT, EAGER)), help="(%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="that has onnxruntime")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each runtime (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn (%(default)s)")
    options = parser.parse_args(argv)
    if options.folder is None and not options.print:
        parser.error("--folder is wanted: models are exported and compiled there")
    if options.out is None and not options.prepare:
        parser.error("--out is wanted: lines are written there")
    if options.prepare:
        prepare(options.folder, options.size)
        return 0
    if not options.print:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        results, about = Results(options.out), machine.describe()
        runtimes = options.runtimes.split(",")
        have = {one["runtime"] for one in results.lines if one.get("model") == options.size}
        if not set(runtimes) <= have:
            prepare(options.folder, options.size)
            turns = (options.rounds, options.seconds)
            for line in measure(options.folder, options.size, runtimes, options.python, *turns):
                console.print(f"{options.size}, {line['runtime']}: {line['median'] / 1000:.3f} ms")
                date = datetime.now(UTC).isoformat(timespec="seconds")
                results.append({**line, "date": date, **about})
    print(table(list(read_all([options.out]))).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
