"""Atomic file writes and lock files, safe with several processes at once."""

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

PARTIAL_SUFFIX = ".partial"
_log = logging.getLogger(__name__)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename the file made there to `path` at the end.

    The file is flushed to disk before the rename. If the block fails, the temporary file is removed and the
    old `path` stays.

    Raises
    ------
    OSError
        The block did not make the file.
    """
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    try:
        yield fresh
        with fresh.open("rb") as made:  # a rename may reach the disk before the content does
            os.fsync(made.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def atomic_open(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file for an atomic write to `path`; the old file stays until the block ends.

    Parameters
    ----------
    path : Path
        A link is followed; a pipe or a device is written directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as there:
            yield there
        return
    path = path.resolve()
    with atomic_path(path) as fresh:
        try:
            file = fresh.open("xb")
        except OSError as error:  # the message names the user's path
            raise OSError(error.errno, error.strerror, str(path)) from error
        with file:
            yield file


def is_partial(path: Path) -> bool:
    """Return whether the file is an unfinished atomic write, of a running or a killed process."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL_SUFFIX)


def try_write(path: Path, write: Callable[[IO[bytes]], Any]) -> bool:
    """Write a cache file; log a warning if that fails.

    Returns
    -------
    bool
        Whether the file was written.
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


# Locks: one process at a time on a folder or a file.


@contextmanager
def locked(
    lock: Path, *, whose: Path, option: str, error: type[WmschedError] = WmschedError
) -> Iterator[None]:
    """Hold a lock file during the block, and remove it at the end; the lock also ends with the process.

    File systems without locks are written unlocked.

    Parameters
    ----------
    lock : Path
        The lock file; its folder is made if missing.
    whose : Path
        The file or folder that the lock protects, for the error text.
    option : str
        The command-line option that names another one, for the error text.
    error : type
        The exception class to raise.

    Raises
    ------
    WmschedError
        Another process holds the lock, or the folder cannot be written.
    """
    with _acquire(lock, whose, option, error):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _acquire(lock: Path, whose: Path, option: str, error: type[WmschedError]) -> IO[str]:
    """Return the lock file, open and locked."""
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
        except OSError:  # the file system has no locks
            return stream
        if _is_at(stream, lock):
            return stream
        stream.close()  # the last holder removed this file: a third process would lock a new one


def _is_at(stream: IO[str], path: Path) -> bool:
    """Return whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False
