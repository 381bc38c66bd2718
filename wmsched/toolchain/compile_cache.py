"""Compile the project's small C++ libraries at first use and cache them in the user's cache folder."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from wmsched.base.files import atomic_path

logger = logging.getLogger("wmsched")

TIMEOUT_SECONDS = 300


def kept(name: str, sources: Iterable[Path], *others: str) -> Path:
    """Return the cache path of the library built from `sources`.

    `others` are further inputs of the build, such as compiler options; they are part of the cache key.
    """
    digest = hashlib.sha256(" ".join(others).encode())
    for path in sources:
        digest.update(path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wmsched" / f"{name}-{digest.hexdigest()[:16]}.so"


def compiled(name: str, source: Path, options: Sequence[str], *others: str, compiler: str | None) -> Path:
    """Return the library of one source file, compiled at the first call with this source and these options.

    `others` are further parts of the cache key, as of `kept`.

    Raises
    ------
    OSError
        As of `compile_to`.
    """
    path = kept(name, [source], *options, *others)
    if not path.is_file():
        compile_to(path, compiler, [*options, str(source)])
    return path


def compile_to(path: Path, compiler: str | None, options: Sequence[str]) -> None:
    """Compile a shared library to `path` by an atomic write, so processes may do it at the same time.

    Raises
    ------
    OSError
        There is no compiler, the compiler fails, or `path` cannot be written.
    """
    if not compiler:
        raise FileNotFoundError("no C++ compiler: install g++, or name one in the environment variable CXX")
    path.parent.mkdir(parents=True, exist_ok=True)
    logger.info("wmsched: compiling %s, once", path)
    with atomic_path(path) as fresh:
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(fresh), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr[-300:]}")
