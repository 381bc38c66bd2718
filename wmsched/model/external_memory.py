"""Ranker rows on disk, for datasets that do not fit in memory.

Each group's rows are in a file of their own, read on access. XGBoost takes them in batches and keeps a
compressed copy on disk (external memory), 1 or 2 bytes a value. Only label, margin and gradient of each
record stay in memory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.base.memory import available_bytes
from wmsched.model.groups import Floats, RankGroup

BATCH_BYTES = 16 << 20  # of rows handed to XGBoost at a time; it holds a few such pages
COPIES_IN_MEMORY = 3  # of all rows: the groups', their concatenation, XGBoost's
MAX_SHARE_OF_FREE_MEMORY = 0.7  # for those copies


class StoredGroup(RankGroup):
    """A :class:`RankGroup` whose rows are read from a file on each access; `even` is kept in memory."""

    def __init__(self, group: RankGroup, path: Path) -> None:
        for name in ("key", "seconds", "network", "slowdown"):
            object.__setattr__(self, name, getattr(group, name))
        for name, value in (("path", path), ("_even", group.even)):
            object.__setattr__(self, name, value)

    path: Path
    _even: NDArray[np.float64]

    @property
    def even(self) -> NDArray[np.float64]:
        """Seconds [N] if the threads shared the work equally."""
        return self._even

    @property
    def rows(self) -> Floats:  # type: ignore[override]
        """float32 [N, F]."""
        rows: Floats = np.load(self.path, allow_pickle=False)
        return rows


def stored(group: RankGroup, path: Path) -> StoredGroup:
    """Write a group's rows to the file `path`; raise OSError if the disk is full."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        np.save(path, group.rows, allow_pickle=False)
    except OSError as error:
        if error.errno is not None:
            raise
        # numpy's message is only "8192 requested and 512 written"
        raise OSError(errno.ENOSPC, f"is the disk full? ({error})", str(path)) from error
    return StoredGroup(group, path)


def external_matrix(
    groups: Sequence[RankGroup],
    label: Callable[[RankGroup], NDArray[Any]],
    *,
    ranked: bool,
    threads: int = 0,
    ref: Any = None,
    batch_bytes: int = BATCH_BYTES,
) -> Any:
    """Return an ``xgboost.ExtMemQuantileDMatrix`` of stored groups; its cache is in their folder.

    Parameters
    ----------
    label : callable that returns a group's labels [N]
    ranked : whether each group is one query
    threads : 0 for all cores
    ref : the training matrix, if this one is held out
    batch_bytes : bytes of rows in a batch; at least one group's
    """
    import xgboost as xgb

    first = groups[0]
    assert isinstance(first, StoredGroup)
    cache = str(first.path.with_name("xgboost"))

    class Batches(xgb.DataIter):  # defined here because XGBoost is imported late
        def __init__(self) -> None:
            self.at = 0
            super().__init__(cache_prefix=cache, release_data=True)

        def reset(self) -> None:
            self.at = 0

        def next(self, input_data: Callable[..., None]) -> bool:
            begin, held, size = self.at, [], 0
            while self.at < len(groups) and size < batch_bytes:
                held.append(groups[self.at].features)
                size += held[-1].nbytes
                self.at += 1
            if not held:
                return False
            numbers = np.repeat(np.arange(begin, self.at), [len(rows) for rows in held])
            labels = np.concatenate([label(group) for group in groups[begin : self.at]])
            query = {"qid": numbers} if ranked else {}
            input_data(data=np.concatenate(held), label=labels, **query)
            return True

    return xgb.ExtMemQuantileDMatrix(Batches(), nthread=threads or None, ref=ref)


def too_large(records: int, columns: int) -> bool:
    """Return whether so many rows would take more than `MAX_SHARE_OF_FREE_MEMORY`."""
    return COPIES_IN_MEMORY * 4 * records * columns > MAX_SHARE_OF_FREE_MEMORY * available_bytes()
