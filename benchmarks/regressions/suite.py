"""`python -m benchmarks.regressions.suite --out FILE`: what CI runs, timed on a clean clone of this checkout.

HEAD is cloned into a temporary folder, and `.ci/run` runs there: set-up, linters and every test that is not
slow. What it prints is shown. Changes that are not committed do not take part. A line: kind "suite",
`seconds`, `rc`. The folder needs 3 GB, and the run takes about fifteen minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.plan import Results

ROOT = Path(__file__).parents[2]
SUITE = ".ci/run"
LIMIT_SECONDS = 7200.0
#: What ties a process to the checkout that it was started from, or lets tests pass that would not elsewhere.
OF_A_CHECKOUT = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "GIT_DIR", "GIT_WORK_TREE")


def run(checkout: Path, folder: Path, limit: float = LIMIT_SECONDS) -> dict[str, Any]:
    """Return the commit, seconds and exit code of the suite of a checkout's HEAD, cloned below `folder`.

    Raises
    ------
    ValueError
        The checkout cannot be cloned, or it has no suite.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_CHECKOUT}
    clone = folder / "clone"
    _git(environment, "clone", "--quiet", "--no-hardlinks", str(checkout), str(clone))
    commit = _git(environment, "-C", str(clone), "rev-parse", "--short=12", "HEAD")
    if not (clone / SUITE).is_file():
        raise ValueError(f"commit {commit} of {checkout} has no {SUITE}")
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", SUITE], cwd=clone, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = process.wait(timeout=limit)
    except BaseException as error:  # Ctrl-C too: the suite's processes end with it
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        code = 124
    return {"commit": commit, "seconds": round(time.monotonic() - began, 1), "rc": code}


def _git(environment: Mapping[str, str], *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], capture_output=True, text=True, env=environment, check=False)
    if ran.returncode:
        raise ValueError(f"git {' '.join(arguments)}: {ran.stderr.strip()[-300:]}")
    return ran.stdout.strip()


def seconds(lines: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of the last suite. ValueError without one, or if it failed."""
    found = [line for line in lines if line["kind"] == "suite"]
    if not found:
        raise ValueError("no suite is in its lines")
    if found[-1]["rc"]:
        raise ValueError(f"the suite of commit {found[-1]['commit']} ended with {found[-1]['rc']}")
    return float(found[-1]["seconds"])


def main(argv: list[str] | None = None) -> int:
    """Run the suite and append its line; the exit code is the suite's, or 2 where it could not begin."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regressions.suite", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose HEAD is cloned (this one)")
    parser.add_argument("--out", type=Path, required=True, help="results file; the line is appended")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    try:
        with tempfile.TemporaryDirectory(prefix="wmsched-suite-", ignore_cleanup_errors=True) as folder:
            outcome = run(options.checkout.resolve(), Path(folder))
    except ValueError as error:
        console.print(f"suite: {error}", markup=False)
        return 2
    described = {name: value for name, value in machine.describe().items() if name != "git"}
    Results(options.out).append({"kind": "suite", **outcome, **described})
    console.print(f"suite of {outcome['commit']}: {outcome['seconds']:.0f} s, exit code {outcome['rc']}")
    return int(outcome["rc"])


if __name__ == "__main__":
    sys.exit(main())
