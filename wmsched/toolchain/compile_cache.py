"""Small libraries of our own sources: compiled when first needed, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from wmsched.base.files import atomic_path

logger = logging.getLogger("wmsched")

LIMIT_SECONDS = 300


def kept(name: str, sources: Iterable[Path], *others: str) -> Path:
    """Where the library of these sources is, or will be; `others` are what it hangs on besides."""
    digest = hashlib.sha256(" ".join(others).encode())
    for path in sources:
        digest.update(path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wmsched" / f"{name}-{digest.hexdigest()[:16]}.so"


def compile_to(path: Path, compiler: str | None, options: Sequence[str]) -> None:
    """Compile to `path`; another process that does so at the same time writes the same.

    Raises
    ------
    OSError
        There is no compiler, it fails, or nothing can be written there.
    """
    if not compiler:
        raise FileNotFoundError("no C++ compiler: install g++, or name one in the environment variable CXX")
    path.parent.mkdir(parents=True, exist_ok=True)
    logger.info("wmsched: compiling %s, once", path)
    with atomic_path(path) as fresh:
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(fresh), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr[-300:]}")
