"""`python -m benchmarks.regressions.start --out FILE`: how long a shell's user waits for wmsched to start.

`import wmsched.cli.main` and `wmsched --help` run in fresh processes in turns. The interpreter's own start
counts: the user waits for it. A first turn, which writes bytecode and fills the page cache, does not. A line
for each of the two: kind "start", `what`, `seconds` (median) and `turns`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.plan import Results

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "import": (sys.executable, "-c", "import wmsched.cli.main"),
    "help": (sys.executable, "-m", "wmsched", "--help"),
}
TURNS = 20


def seconds_of(commands: Mapping[str, Sequence[str]], turns: int) -> dict[str, list[float]]:
    """Return the seconds of each command's processes, a process of each in every turn.

    Raises
    ------
    ValueError
        A command fails.
    """
    found: dict[str, list[float]] = {name: [] for name in commands}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for turn in range(turns + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            spent = time.perf_counter() - began
            if ran.returncode:
                raise ValueError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr[-300:]}")
            if turn:
                found[name].append(spent)
    return found


def seconds(lines: Sequence[Mapping[str, Any]], what: str) -> float:
    """Return the median of the last line of `what`. ValueError without one."""
    found = [line["seconds"] for line in lines if line["kind"] == "start" and line["what"] == what]
    if not found:
        raise ValueError(f"no start of {what} is in its lines")
    return float(found[-1])


def main(argv: list[str] | None = None) -> int:
    """Measure and append the lines; the exit code is 1 where a command fails."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regressions.start", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--turns", type=int, default=TURNS, help=f"processes of each command ({TURNS})")
    parser.add_argument("--out", type=Path, required=True, help="results file; lines are appended")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    try:
        found = seconds_of(COMMANDS, options.turns)
    except ValueError as error:
        console.print(f"start: {error}", markup=False)
        return 1
    results = Results(options.out)
    for name, turns in found.items():
        median = round(statistics.median(turns), 4)
        line = {"what": name, "seconds": median, "turns": [round(turn, 4) for turn in turns]}
        results.append({"kind": "start", **line, **machine.describe()})
        console.print(f"{name}: {median:.3f} s", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
