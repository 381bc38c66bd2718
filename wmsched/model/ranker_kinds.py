"""Kinds of G: boosted trees, and plug-ins of the entry point group ``wmsched.rankers``.

A plug-in is a :class:`RankerKind`. The research rankers of `benchmarks.rankers` are plug-ins.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmsched.base.errors import UnknownName
from wmsched.model.ranker import Ranker

__all__ = ["ENTRY_POINT_GROUP", "TREES", "RankerKind", "find_kind", "kinds", "load_ranker", "ranker_kind"]

ENTRY_POINT_GROUP = "wmsched.rankers"
TREES = "trees"


@dataclass(frozen=True, kw_only=True)
class RankerKind:
    """A kind of G that replaces the trees.

    Parameters
    ----------
    file : str
        Name of the file that only this kind writes to a bundle's folder.
    load : callable (Path) -> ranker
        Reads a bundle's G, which has `width`, `margins` and `save` like `wmsched.model.ranker.Ranker`.
    train : callable (dataset, groups, options, log) -> (ranker, metrics)
        Like `wmsched.learn.training.train_ranker.train_ranker`; `options` is a `TrainOptions`.
    refit : callable (ranker or None) -> fit
        Returns a fit for `wmsched.learn.evaluate.cross_validation.out_of_fold`, with a trained ranker's
        settings or the defaults. None: cross-validation trains trees instead.

    Examples
    --------
    In ``setup.py``: ``entry_points={"wmsched.rankers": ["latent = benchmarks.rankers.kinds:LATENT"]}``.
    """

    file: str
    load: Callable[[Path], Any]
    train: Callable[..., tuple[Any, dict[str, float]]]
    refit: Callable[[Any], Callable[..., Any]] | None = None


@functools.cache
def _plugins() -> dict[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def kinds() -> tuple[str, ...]:
    """Return the names of all installed kinds, trees first."""
    return (TREES, *sorted(_plugins()))


def find_kind(name: str) -> RankerKind:
    """Return the plug-in of a name.

    Raises
    ------
    UnknownName
        No installed package registers it.
    """
    if name not in _plugins():
        raise UnknownName(
            f"no installed package provides a ranker {name!r}: there are {', '.join(kinds())}; "
            f"install the one that registers it under the entry point group {ENTRY_POINT_GROUP}"
        )
    kind = _plugins()[name].load()
    assert isinstance(kind, RankerKind), f"{_plugins()[name].value} is no RankerKind"
    return kind


def ranker_kind(folder: Path) -> str:
    """Return the kind of a bundle's G, by the files in its folder."""
    return next((name for name in kinds()[1:] if (folder / find_kind(name).file).is_file()), TREES)


def load_ranker(folder: Path, kind: str) -> Any:
    """Load a bundle's G of a kind from `ranker_kind`."""
    return Ranker.load(folder) if kind == TREES else find_kind(kind).load(folder)
