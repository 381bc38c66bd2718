"""Origin of a result line: machine, CPU, versions, commit."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("wmsched", "numpy", "xgboost", "torch", "transformers")
REPOSITORY = Path(__file__).parents[1]


def cpu_model() -> str:
    """The CPU's name as Linux gives it, with family and model, since virtual machines often hide the name."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor() or "unknown"
    name = fields.get("model name", platform.processor() or "unknown")
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def commit() -> str:
    """The checkout's commit, with "+" if tracked files are changed; "" outside a checkout."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=30)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        return head + "+" if head and git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.TimeoutExpired):
        return ""


def versions() -> dict[str, str]:
    """Python and the packages that decide a result; TVM adds its own, in the process that has imported it."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe() -> dict[str, Any]:
    """The fields of a result line about the machine and the code: each run imports what is there then."""
    return {**_machine(), "git": commit()}


@functools.cache
def _machine() -> dict[str, Any]:
    from wmsched.base.cores import usable_cores

    return {
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "versions": versions(),
    }
