"""Substitute the numbers of many candidates into the templates of their structures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features.batch.loops import Depths, Floats, Ints
from wmsched.features.batch.template import Products, Template

MAX_LENGTH = 2.0**31  # of a split
MAX_EXACT = 2.0**52  # larger products take the plain path, which counts in integers


@dataclass(frozen=True)
class Numbers(Depths):
    """Values of a `template.Template` for N candidates of several structures with one heaviest operation.

    Parameters
    ----------
    fine : bool [N]
        Whether the other fields are valid; False for candidates with invalid lengths.
    works, weights, parallels, helpers, single : [N, S], [N, 4, S], [N, P], [N, H], [N, 4]
    lanes, shared : [N, S], [N, S]
    lengths : [N, 8]
        The first eight split lengths; NaN where there are fewer.
    unroll_max : [N]
    attached : bool [N]
    """

    fine: NDArray[np.bool_]
    works: Floats
    weights: Floats
    lanes: Floats
    shared: Floats
    parallels: Floats
    helpers: Floats
    single: Floats
    lengths: Floats
    unroll_max: Floats
    attached: NDArray[np.bool_]

    @classmethod
    def put_in(
        cls,
        templates: Sequence[Template],
        which: Ints,
        lengths: Sequence[Sequence[Any]],
        unrolls: Sequence[Sequence[int]],
    ) -> Numbers:
        """Return the values of the templates for all candidates.

        Parameters
        ----------
        templates : sequence of T
        which : int [N]
            Number of each candidate's template.
        lengths, unrolls : N sequences
            The numbers that `structure.outline` takes out.
        """
        atoms, given = _ragged(lengths, 1.0)
        fine = ((atoms >= 1) & (atoms <= MAX_LENGTH)).all(axis=1)  # a missing length is NaN and fails both
        atoms[~fine] = 1.0
        quotients = max(len(t.totals.factor) for t in templates)
        values = np.ones((len(which), 1 + atoms.shape[1] + quotients))
        values[:, 1 : 1 + atoms.shape[1]] = atoms

        def taken(parts: list[Products], fill: float) -> Floats:
            return _evaluate(_stack_products(parts, fill, values.shape[1]), which, values)

        for _ in range(max(t.depth for t in templates)):
            total = taken([t.totals for t in templates], 1.0)
            rest = taken([t.rests for t in templates], 1.0)
            values[:, values.shape[1] - quotients :] = np.ceil(total / rest)[:, ::-1]
        works = taken([t.works for t in templates], 0.0)
        fine = np.logical_and(fine, (works < MAX_EXACT).all(axis=1))
        first = np.full((len(which), 8), np.nan)
        width = min(8, atoms.shape[1])
        first[:, :width] = np.where(given[:, :width], atoms[:, :width], np.nan)
        loops = _stack([t.loops for t in templates], 0)[which]
        numbered = np.concatenate([np.zeros((len(which), 1)), _ragged(unrolls, 0.0)[0]], axis=1)
        unroll = np.take_along_axis(numbered, np.stack([t.unrolls for t in templates])[which], axis=1)
        return cls(
            source=templates[0].source,
            reads=templates[0].reads,
            fine=fine,
            extents=taken([t.extents for t in templates], 1.0),
            tiles=taken([t.tiles for t in templates], 1.0),
            kind=loops[:, 0],
            ann=loops[:, 1],
            last=loops[:, 2],
            works=works,
            weights=_stack([t.weights[:, : len(t.works.factor)] for t in templates], 0.0)[which],
            lanes=taken([t.lanes for t in templates], 1.0),
            shared=taken([t.shared for t in templates], 1.0),
            parallels=taken([t.parallels for t in templates], 0.0),
            helpers=taken([t.helpers for t in templates], 0.0),
            single=taken([t.single for t in templates], 0.0),
            lengths=first,
            unroll=unroll[:, 0],
            unroll_max=unroll[:, 1:].max(axis=1),
            vector=np.array([t.vector for t in templates])[which],
            attached=np.array([t.attached for t in templates])[which],
        )


def _ragged(rows: Sequence[Sequence[Any]], fill: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return rows of different lengths as one padded array, and a mask of the given entries."""
    counts = np.array([len(row) for row in rows])
    given = np.arange(max(counts.max(), 1)) < counts[:, None]
    filled = np.full(given.shape, fill)
    filled[given] = np.array(list(chain.from_iterable(rows)), dtype=np.float64)
    return filled, given


def _stack(parts: Sequence[NDArray[Any]], fill: float) -> NDArray[Any]:
    """Return arrays of different shapes as one [T, ...], padded at their ends."""
    shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts)))
    stacked = np.full((len(parts), *shape), fill, dtype=parts[0].dtype)
    for k, part in enumerate(parts):
        corner: Any = (k, *(slice(size) for size in part.shape))
        stacked[corner] = part
    return stacked


def _stack_products(parts: Sequence[Products], fill: float, columns: int) -> Products:
    """Return T structures' products as factor [T, ...] and atoms [W, T, ...], numbered as value columns."""
    atoms = np.moveaxis(_stack([part.atoms for part in parts], 0), 0, 1)
    return Products(
        _stack([part.factor for part in parts], fill), np.where(atoms < 0, atoms + columns, atoms)
    )


def _evaluate(products: Products, which: Ints, values: Floats) -> Floats:
    """Return the products' values [N, ...], for the values [N, columns] of their atoms."""
    out = products.factor[which]
    start = (np.arange(len(which)) * values.shape[1]).reshape(-1, *[1] * (out.ndim - 1))
    flat = values.ravel()
    for places in products.atoms:
        out *= flat.take(places[which] + start)
    return out
