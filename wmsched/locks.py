"""One process at a time on a folder or a file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from wmsched.errors import WmschedError


@contextmanager
def locked(
    lock: Path, *, whose: Path, option: str, error: type[WmschedError] = WmschedError
) -> Iterator[None]:
    """Hold a lock file; the lock goes with the process, the file after the block.

    A file system that has no locks is written without.

    Parameters
    ----------
    lock : Path
        Its folder is made if it is not there.
    whose : Path
        What it is that only one may write,
    option : str
        and the option that names another.
    error : type
        What is raised, a kind of WmschedError.

    Raises
    ------
    WmschedError
        Another process holds it, or the folder cannot be written.
    """
    with _taken(lock, whose, option, error):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _taken(lock: Path, whose: Path, option: str, error: type[WmschedError]) -> IO[str]:
    """The lock file, open and held."""
    while True:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            stream = lock.open("w")
        except OSError as reason:
            raise error(
                f"{whose} cannot be written: {reason.strerror or reason}; choose another {option}"
            ) from reason
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise error(f"another run is writing {whose}; wait for it, or choose another {option}") from None
        except OSError:  # no locks here
            return stream
        if _is_at(stream, lock):
            return stream
        stream.close()  # who held it has removed it meanwhile: a third would open another and hold that


def _is_at(stream: IO[str], path: Path) -> bool:
    """Whether an open file is the one that has the name."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False
