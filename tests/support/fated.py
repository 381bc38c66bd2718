"""What a kept builder calls in its workers, which import this file: it says what becomes of a build."""

from __future__ import annotations

import os
import time
from pathlib import Path


def number(mod, target, parameters=None):
    """In a worker: its process's number in place of a program."""
    return os.getpid()


def export(pid):
    """In a worker: what `number` said, as the artifact."""
    told = Path(os.environ["TOLD"])
    fate = told.read_text() if told.exists() else ""
    if fate == "crash":
        os._exit(3)
    if fate == "hang":
        time.sleep(3600)
    if fate == "raise":
        raise RuntimeError("made to fail")
    return f"/made/by/{pid}"
