"""One process at a time on a folder or a file."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w")
    except OSError as reason:
        raise error(
            f"{whose} cannot be written: {reason.strerror or reason}; choose another {option}"
        ) from reason
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(f"another run is writing {whose}; wait for it, or choose another {option}") from None
        except OSError:  # no locks here
            pass
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
