"""`python -m benchmarks.runtimes.shapes --folder DIR --out FILE`: one run of three lengths, and runs of one.

BERT with 16, 64 and 128 tokens is compiled three times with one length and once with all three, each in a
process and a folder of its own: kind "shapes-run", a line for each with its seconds. Then each length's
library of the run of three is called in turns with that of the run of one: kind "shapes-latency". A case is
LAYERS:MODE, and MODE is "constructed", or the trials of a function of the run of one. FILE is gone on with;
what it has is not measured again. A run that was stopped begins anew: its seconds are all of its seconds.

`--print` prints the table of FILE and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results, read_all
from benchmarks.runtimes.turns import in_turns

RUN, LATENCY = "shapes-run", "shapes-latency"
LENGTHS = (16, 64, 128)
CASES = ("2:4", "12:constructed")
CONSTRUCTED = "constructed"
NEIGHBOUR_SHARE = 4  # a function that another length has gets one trial for so many of the others
ROUNDS, SECONDS = 5, 2.0  # turns of each library, and their length


def exported(folder: Path, layers: int) -> Path:
    """Write a BERT with an open length as a program of PyTorch's, unless it is there."""
    path = folder / f"bert-{layers}.pt2"
    if path.is_file():
        return path
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(num_hidden_layers=layers)).eval()
    given = torch.zeros(1, LENGTHS[-1], dtype=torch.int64), torch.ones(1, LENGTHS[-1], dtype=torch.int64)
    length = torch.export.Dim("length", min=2, max=512)
    dynamic = {"input_ids": {1: length}, "attention_mask": {1: length}}
    with torch.inference_mode():
        program = torch.export.export(model, given, dynamic_shapes=dynamic)
    folder.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, path)
    return path


def compiled(path: Path, out: Path, lengths: Sequence[int], trials: int | None) -> float:
    """Compile a model with some lengths; seconds from the command to its end. Raises CalledProcessError."""
    extents = "/".join(map(str, lengths))
    shapes = [f"--shape={name}=1,{extents}" for name in ("input_ids", "attention_mask")]
    how = ["compile"] if trials is None else ["tune", "--trials", str(trials)]
    began = time.monotonic()
    command = [sys.executable, "-m", "wmsched", how[0], str(path), *how[1:], *shapes, "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def functions(out: Path) -> int:
    """How many functions the model of a folder has."""
    return len(json.loads((out / "report.json").read_text(encoding="utf-8"))["tasks"])


def runs(folder: Path, layers: int, mode: str, have: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Lines of the runs that have none yet: of one length, the longest first, and of all."""
    path, base = exported(folder, layers), folder / f"bert-{layers}-{mode}"
    each = None if mode == CONSTRUCTED else int(mode)
    done = {line["lengths"] for line in have if line["kind"] == RUN}
    for lengths in (*((one,) for one in reversed(LENGTHS)), LENGTHS):
        name = "/".join(map(str, lengths))
        out = base / name.replace("/", "-")
        if name in done:
            continue
        trials = None
        if each is not None:
            # every model of one length has about as many functions as the longest
            known = base / str(LENGTHS[-1])
            count = functions(known) if (known / "report.json").is_file() else 24
            trials = each * count * (NEIGHBOUR_SHARE + len(lengths) - 1) // NEIGHBOUR_SHARE
        shutil.rmtree(out, ignore_errors=True)
        seconds = compiled(path, out, lengths, trials)
        yield {"kind": RUN, "lengths": name, "trials": trials or 0, "seconds": round(seconds, 2)}


def latencies(
    folder: Path, layers: int, mode: str, have: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Lines of the lengths that have none yet: both libraries in turns."""
    base = folder / f"bert-{layers}-{mode}"
    several = base / "-".join(map(str, LENGTHS))
    parts = json.loads((several / "model.json").read_text(encoding="utf-8"))["shapes"]
    own = {one["inputs"][0]["shape"][1]: several / one["folder"] for one in parts}
    for length in LENGTHS:
        if any(line["kind"] == LATENCY and line["length"] == length for line in have):
            continue
        places = {"several": own[length], "alone": base / str(length)}
        times = in_turns(places, ROUNDS, SECONDS)
        yield {
            "kind": LATENCY, "length": length,
            **{name: round(statistics.median(turns), 2) for name, turns in times.items()},
            "turns": {name: [round(one, 2) for one in turns] for name, turns in times.items()},
        }  # fmt: skip


def three_over_one(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By case: seconds of the run of all lengths over those of the longest alone."""
    seconds = {(line["case"], line["lengths"]): line["seconds"] for line in lines if line["kind"] == RUN}
    every, longest = "/".join(map(str, LENGTHS)), str(LENGTHS[-1])
    return {
        case: value / seconds[case, longest]
        for (case, lengths), value in seconds.items()
        if lengths == every and (case, longest) in seconds
    }


def over_own(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """By case and length: latency of the run of all lengths over that of the length alone, in turns."""
    return {
        (line["case"], line["length"]): statistics.median(
            a / b for a, b in zip(line["turns"]["several"], line["turns"]["alone"])
        )
        for line in lines
        if line["kind"] == LATENCY
    }


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Both ratios of each case."""
    owns = over_own(lines)
    rows = [
        [case, f"{ratio:.2f}", *(f"{owns[case, n]:.3f}" if (case, n) in owns else "" for n in LENGTHS)]
        for case, ratio in three_over_one(lines).items()
    ]
    head = ["layers:mode", "seconds of three lengths over one", *(f"{n} tokens over alone" for n in LENGTHS)]
    return Table(title="Three lengths of BERT in one run", head=head, rows=rows, note="")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes.shapes", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--folder", type=Path, help="of models and runs")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--cases", default=",".join(CASES), help="LAYERS:MODE (%(default)s)")
    parser.add_argument("--print", action="store_true", help="print the table and measure nothing")
    options = parser.parse_args(argv)
    if not options.print:
        if options.folder is None:
            parser.error("--folder is wanted: models are exported and compiled there")
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        results, about = Results(options.out), machine.describe()
        for case in options.cases.split(","):
            layers, _, mode = case.partition(":")
            for made in (runs, latencies):
                have = [line for line in results.lines if line.get("case") == case]
                for line in made(options.folder, int(layers), mode, have):
                    console.print(f"{case}: {line}")
                    date = datetime.now(UTC).isoformat(timespec="seconds")
                    results.append({**line, "case": case, "date": date, **about})
    print(table(list(read_all([options.out]))).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
