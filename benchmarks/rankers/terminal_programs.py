"""The terminal programs of a dataset's replayed records, taken apart into statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.rankers.statements import statement_rows
from wmsched.learn.data.dataset import ranked

if TYPE_CHECKING:
    from wmsched.learn.data.dataset import Dataset

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Programs:
    """Terminal programs of some workloads: the statements of each distinct one, and which is whose.

    Attributes
    ----------
    rows : float32 [S, C] of each program
    of : {workload: int64 [N]}, the program of each of its records, -1 where it was not replayed
    """

    rows: list[Floats]
    of: dict[str, NDArray[np.int64]]

    @classmethod
    def read(cls, dataset: Dataset, workload_ids: Sequence[str], *, disturbed: bool = True) -> Programs:
        """Read and take apart the terminal states of a dataset.

        Parameters
        ----------
        disturbed : as in :func:`wmsched.learn.training.train_ranker.build_groups`, whose records these must
        be
        """
        rows: list[Floats] = []
        of = {}
        for key in workload_ids:
            texts, known = dataset.states(key), {}  # type: dict[str, str], dict[str, int]
            found, _ = ranked(dataset, key, disturbed=disturbed)
            numbers = np.full(len(found), -1, np.int64)
            for place, trajectory in enumerate(found):
                if not trajectory.states:
                    continue
                name = trajectory.states[-1]
                if name not in known:
                    known[name] = len(rows)
                    rows.append(statement_rows(texts[name]))
                numbers[place] = known[name]
            of[key] = numbers
        return cls(rows, of)

    def batch(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor, int, Tensor]:
        """Statements [R, C] of distinct programs, the program of each [R], how many, and the place of each
        of `numbers` among them.
        """
        distinct, place = np.unique(numbers, return_inverse=True)
        owner = np.repeat(np.arange(len(distinct)), [len(self.rows[n]) for n in distinct])
        rows = np.concatenate([self.rows[n] for n in distinct])
        parts = (torch.from_numpy(rows), torch.from_numpy(owner), len(distinct))
        return *parts, torch.from_numpy(place.reshape(numbers.shape))
