"""`python -m benchmarks.runtimes.graph_choices --folder DIR --out FILE`: graphs by rules and as chosen.

Each model is compiled with constructed schedules, once with today's rules and once with `--graph-choices`,
each in a process and a folder of its own. Both libraries are then called in turns: kind "graph_model", a line
for each model with the microseconds of both and the seconds of the two compilations. FILE is gone on with;
what it has is not measured again.

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
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results, read_all
from benchmarks.runtimes.compare import exported, geomean
from benchmarks.runtimes.turns import in_turns

KIND = "graph_model"
MODELS = ("resnet50", "mobilenetv2", "efficientnet-b0", "detector")
CHOICES = 3
ROUNDS, SECONDS = 7, 2.0  # turns of each library, and their length


def compiled(path: Path, out: Path, choices: int) -> float:
    """Compile a model; seconds from the command to its end. Raises CalledProcessError."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "wmsched", "compile", str(path), "--out", str(out)]
    if choices > 1:
        command += ["--graph-choices", str(choices)]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def measured(folder: Path, name: str, choices: int) -> dict[str, Any]:
    """The line of a model."""
    exported(folder, name)
    path = folder / f"{name}.onnx"
    places = {which: folder / "graphs" / f"{name}-{which}" for which in ("rules", "chosen")}
    took = {which: compiled(path, out, choices if which == "chosen" else 1) for which, out in places.items()}
    graph = json.loads((places["chosen"] / "model.json").read_text(encoding="utf-8")).get("graph", [])
    times = in_turns(places, ROUNDS, SECONDS)
    return {
        "kind": KIND,
        "model": name,
        "choices": choices,
        "changed": sum(map(bool, graph)),
        "options": {str(option): count for option, count in sorted(Counter(graph).items())},
        "compile_seconds": {which: round(seconds, 2) for which, seconds in took.items()},
        "turns": {which: [round(one, 2) for one in turns] for which, turns in times.items()},
        **{which: round(statistics.median(turns), 2) for which, turns in times.items()},
    }


def gains(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By model: the rules' time over the chosen graph's, the median of the turns' ratios."""
    return {
        line["model"]: statistics.median(
            a / b for a, b in zip(line["turns"]["rules"], line["turns"]["chosen"], strict=True)
        )
        for line in lines
        if line["kind"] == KIND
    }


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Both times of each model, and their ratio."""
    found = gains(lines)
    rows = [
        [
            line["model"],
            f"{line['rules'] / 1e3:.2f}",
            f"{line['chosen'] / 1e3:.2f}",
            f"{found[line['model']]:.3f}",
            str(line["changed"]),
            f"{line['compile_seconds']['rules']:.0f} and {line['compile_seconds']['chosen']:.0f}",
        ]
        for line in lines
        if line["kind"] == KIND
    ]
    if rows:
        rows.append(["geometric mean", "", "", f"{geomean(list(found.values())):.3f}", "", ""])
    head = ["model", "rules, ms", "chosen, ms", "rules over chosen", "changed", "seconds to compile"]
    return Table(title="Graphs as chosen beside today's rules", head=head, rows=rows, note="")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes.graph_choices", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--folder", type=Path, help="of models and libraries")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--models", default=",".join(MODELS), help="(%(default)s)")
    parser.add_argument("--choices", type=int, default=CHOICES, help="of `--graph-choices` (%(default)s)")
    parser.add_argument("--print", action="store_true", help="print the table and measure nothing")
    options = parser.parse_args(argv)
    if not options.print:
        if options.folder is None:
            parser.error("--folder is wanted: models are exported and compiled there")
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        results, about = Results(options.out), machine.describe()
        have = {line["model"] for line in results.lines if line["kind"] == KIND}
        for name in options.models.split(","):
            if name not in have:
                line = measured(options.folder, name, options.choices)
                console.print(f"{name}: {gains([line])[name]:.3f} of the rules' speed")
                date = datetime.now(UTC).isoformat(timespec="seconds")
                results.append({**line, "date": date, **about})
    print(table(list(read_all([options.out]))).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
