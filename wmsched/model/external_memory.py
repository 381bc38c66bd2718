"""The ranker's rows on disk, for datasets whose rows do not fit in memory.

A group's rows lie in a file of their own and are read when they are asked for. XGBoost gets them batch by
batch and keeps its own compressed copy, a byte or two a value, on disk as well (its external memory); what
stays in memory is a few numbers a record: label, margin, gradient.
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

BATCH_BYTES = 16 << 20  # rows handed to XGBoost at a time; a few of its pages of so many are held
COPIES = 3  # of all rows, where they are held in memory: the groups', their concatenation, XGBoost's own
SHARE = 0.7  # of the memory that is free, which they may take


class StoredGroup(RankGroup):
    """A :class:`RankGroup` whose rows are read from a file each time they are asked for; not for `even`."""

    def __init__(self, group: RankGroup, path: Path) -> None:
        for name in ("key", "seconds", "network", "slowdown"):
            object.__setattr__(self, name, getattr(group, name))
        for name, value in (("path", path), ("_even", group.even)):
            object.__setattr__(self, name, value)

    path: Path
    _even: NDArray[np.float64]

    @property
    def even(self) -> NDArray[np.float64]:
        """Seconds [N] that equal shares of the work would take."""
        return self._even

    @property
    def rows(self) -> Floats:  # type: ignore[override]
        """float32 [N, F]."""
        rows: Floats = np.load(self.path, allow_pickle=False)
        return rows


def stored(group: RankGroup, path: Path) -> StoredGroup:
    """Write the rows of a group to the file `path`; OSError where the disk has no room for them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        np.save(path, group.rows, allow_pickle=False)
    except OSError as error:
        if error.errno is not None:
            raise
        # numpy says "8192 requested and 512 written" and no more
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
    """An ``xgboost.ExtMemQuantileDMatrix`` of stored groups; its cache lies beside their files.

    Parameters
    ----------
    label : of a group's records, [N]
    ranked : whether each group is a query of its own
    threads : 0 for all cores
    ref : the matrix trained on, for a held-out one
    batch_bytes : rows handed over at a time, at least a group's
    """
    import xgboost as xgb

    first = groups[0]
    assert isinstance(first, StoredGroup)
    cache = str(first.path.with_name("xgboost"))

    class Batches(xgb.DataIter):  # a class of its own only here: XGBoost is imported late
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
    """Whether so many rows in memory would take more than a good part of what is free."""
    return COPIES * 4 * records * columns > SHARE * available_bytes()
