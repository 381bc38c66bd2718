"""Commands killed at random moments, and files compared."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def killed(
    command: list[str],
    *,
    kills: int,
    seconds: float,
    seed: int,
    ended: Callable[[], None],
    cwd: Path | None = None,
) -> int:
    """Start the command again and again until `kills` kills have met it alive; return how often it ended.

    Parameters
    ----------
    seconds : what it takes undisturbed; a kill comes at a random moment of that time, to its children too
    ended : called where it ended before its moment came: checks what it wrote, and removes it
    """
    chance = random.Random(seed)
    quietly = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    finished = landed = 0
    while landed < kills:
        process = subprocess.Popen(command, cwd=cwd, **quietly)
        try:
            assert process.wait(timeout=chance.uniform(0.05, 1.0) * seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            landed += 1
        else:
            finished += 1
            ended()
    return finished


def timed(command: list[str], *, cwd: Path | None = None) -> float:
    """Run the command undisturbed; return its seconds."""
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)
    return time.monotonic() - begin


def files(root: Path) -> dict[str, bytes]:
    """Every file under `root` with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
