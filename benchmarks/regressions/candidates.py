"""`python -m benchmarks.regressions.candidates --before DIR --out FILE`: candidates a second of two commits.

Both schedulers' cost models score recorded candidates of this checkout's logs, in this checkout's code and in
that of another one. Each checkout has processes of its own, and they take turns. A line for each scheduler
and round: kind "candidates", `scheduler`, `round`, `now` and `before` (candidates a second), `ratio`, both
commits. Started again, the command goes on with the rounds that FILE lacks. Native libraries are compiled
before anything is timed, in a cache below `--caches` for each checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.plan import Results

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("candidates_child.py")
LOGS = {"ansor": "x86-zen4-2core", "meta": "meta-zen4-2core"}
ROUNDS = 5
LIMIT_SECONDS = 600.0


def rate(checkout: Path, scheduler: str, caches: Path, *, repeats: int) -> dict[str, Any]:
    """Return what a process of a checkout's answers: candidates, rate, and a digest of their scores.

    Raises
    ------
    ValueError
        The process fails, or it imports another checkout's wmsched.
    """
    spec = {"scheduler": scheduler, "logs": str(ROOT / "data_builder" / "logs" / LOGS[scheduler]),
            "checkout": str(checkout), "repeats": repeats}  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(caches)}
    ran = subprocess.run(
        [sys.executable, "-P", str(CHILD)],
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        env=environment,
        cwd=checkout,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if ran.returncode:
        raise ValueError(f"{scheduler} in {checkout} ended with {ran.returncode}: {ran.stderr[-600:]}")
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout, "+" behind it if tracked files are changed. ValueError outside one."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise ValueError(f"{checkout} is no checkout of git: {ran.stderr.strip()[-200:]}")
        return ran.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def over_before(lines: Sequence[Mapping[str, Any]], scheduler: str) -> tuple[float, float, float]:
    """Return the median of a scheduler's ratios, the least and the greatest. ValueError without one.

    >>> lines = [{"kind": "candidates", "scheduler": "meta", "ratio": ratio} for ratio in (0.9, 1.1, 1.0)]
    >>> over_before(lines, "meta")
    (1.0, 0.9, 1.1)
    """
    found = [
        line["ratio"] for line in lines if line["kind"] == "candidates" and line["scheduler"] == scheduler
    ]
    if not found:
        raise ValueError(f"no round of {scheduler} is in its lines")
    return statistics.median(found), min(found), max(found)


def main(argv: list[str] | None = None) -> int:
    """Measure the rounds that are missing; the exit code is 1 where a process fails."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regressions.candidates", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--caches", type=Path, default=Path("work/candidates"), help="of native libraries")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each scheduler ({ROUNDS})")
    parser.add_argument("--repeats", type=int, default=20, help="of the candidates in a process (20)")
    parser.add_argument("--schedulers", default=",".join(LOGS), help="ansor, meta or both")
    parser.add_argument("--out", type=Path, required=True, help="results file; lines are appended")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    results = Results(options.out)
    try:
        _measure(options, results, console)
    except (ValueError, subprocess.TimeoutExpired) as error:
        console.print(f"candidates: {error}", markup=False)
        return 1
    return 0


def _measure(options: argparse.Namespace, results: Results, console: Console) -> None:
    places = {"now": ROOT, "before": options.before.resolve()}
    commits = {f"{who}_commit": commit_of(place) for who, place in places.items()}
    caches = {who: options.caches.resolve() / who for who in places}
    done = {
        (line["scheduler"], line["round"])
        for line in results.lines
        if line["kind"] == "candidates" and commits.items() <= line.items()
    }
    wanted = options.schedulers.split(",")
    missing = [(number, name) for number in range(options.rounds) for name in wanted]
    missing = [(number, name) for number, name in missing if (name, number) not in done]
    for who, place in places.items():  # compiles the native libraries
        for name in dict.fromkeys(name for _, name in missing):
            rate(place, name, caches[who], repeats=0)
    for number, name in missing:
        turn = list(places.items())[:: 1 if number % 2 else -1]
        found = {who: rate(place, name, caches[who], repeats=options.repeats) for who, place in turn}
        now, before = found["now"], found["before"]
        if now["candidates"] != before["candidates"]:
            raise ValueError(f"{name} reads {now['candidates']} candidates, {before['candidates']} before")
        line = {
            "scheduler": name,
            "round": number,
            "candidates": now["candidates"],
            "now": round(now["rate"]),
            "before": round(before["rate"]),
            "ratio": round(now["rate"] / before["rate"], 4),
            "same_scores": now["scores"] == before["scores"],
        }
        results.append({"kind": "candidates", **line, **commits, **machine.describe()})
        console.print(
            f"{name} {number}: {line['now']} a second, {line['before']} before, {line['ratio']:.3f}"
        )


if __name__ == "__main__":
    sys.exit(main())
