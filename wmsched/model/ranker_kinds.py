"""Kinds of G: boosted trees, and what other packages add under the entry point group ``wmsched.rankers``.

A plug-in is a :class:`RankerKind`; this repository's own are the research rankers of `benchmarks.rankers`.
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

__all__ = ["GROUP", "TREES", "RankerKind", "find_kind", "kinds", "load_ranker", "ranker_kind"]

GROUP = "wmsched.rankers"
TREES = "trees"


@dataclass(frozen=True, kw_only=True)
class RankerKind:
    """A kind of G that takes the place of the trees.

    Parameters
    ----------
    file : str
        Name of the file in a bundle's folder that only this kind has.
    load : callable (Path) -> ranker
        Reads a bundle's G, which has `width`, `margins` and `save` as `wmsched.model.ranker.Ranker` has.
    train : callable (dataset, groups, options, log) -> (ranker, metrics)
        As `wmsched.learn.training.train_ranker.train_ranker`; `options` is a `TrainOptions`.
    refit : callable (ranker or None) -> fit
        A fit for `wmsched.learn.evaluate.cross_validation.out_of_fold`, with the settings of a trained ranker
        or its defaults; None where the kind is evaluated by its trees.

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
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}


def kinds() -> tuple[str, ...]:
    """Names of all kinds that are installed, the trees first."""
    return (TREES, *sorted(_plugins()))


def find_kind(name: str) -> RankerKind:
    """Plug-in of a name.

    Raises
    ------
    UnknownName
        No installed package has it.
    """
    if name not in _plugins():
        raise UnknownName(
            f"no installed package provides a ranker {name!r}: there are {', '.join(kinds())}; "
            f"install the one that registers it under the entry point group {GROUP}"
        )
    kind = _plugins()[name].load()
    assert isinstance(kind, RankerKind), f"{_plugins()[name].value} is no RankerKind"
    return kind


def ranker_kind(folder: Path) -> str:
    """Kind of G that a bundle's folder has, by its files."""
    return next((name for name in kinds()[1:] if (folder / find_kind(name).file).is_file()), TREES)


def load_ranker(folder: Path, kind: str) -> Any:
    """G of a bundle, of the kind that `ranker_kind` names."""
    return Ranker.load(folder) if kind == TREES else find_kind(kind).load(folder)
