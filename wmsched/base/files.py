"""Files that are written whole or not at all, by however many processes at once."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from wmsched.base.errors import WmschedError

PARTIAL = ".partial"
_log = logging.getLogger(__name__)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """The name of a file to make, which becomes `path` where the block ends well, all of it on disk.

    It lies beside it under a name that no other process has. Where the block fails it is removed, and what
    was at `path` before stays.

    Raises
    ------
    OSError
        The block has made no file.
    """
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield fresh
        with fresh.open("rb") as made:  # its name is on disk at once, its content would be at some time
            os.fsync(made.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def atomic_open(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into, which gets its name as that of `atomic_path` does; an older one stays until then.

    Parameters
    ----------
    path : Path
        Of a link what it leads to; a pipe or a device is written as it is.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as there:
            yield there
        return
    path = path.resolve()
    with atomic_path(path) as fresh:
        try:
            file = fresh.open("xb")
        except OSError as error:  # told by the name that was given
            raise OSError(error.errno, error.strerror, str(path)) from error
        with file:
            yield file


def is_partial(path: Path) -> bool:
    """Whether the file is one that is being written, or that a killed process left so."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def try_write(path: Path, write: Callable[[IO[bytes]], Any]) -> bool:
    """Write a file of a cache; where it cannot be written, say so and go on.

    Returns
    -------
    bool
        Whether it is there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_open(path) as file:
            write(file)
    except OSError as error:
        _log.warning(
            "%s cannot be written (%s), so what it is to keep is computed anew each time: let its folder be "
            "written, and have room",
            path,
            error.strerror or error,
        )
        return False
    return True


# One process at a time on a folder or a file.


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
