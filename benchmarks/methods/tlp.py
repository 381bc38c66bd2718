"""TLP, a language model of primitives, fitted to the same logs as ours and then frozen."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import records
from benchmarks.methods import Settings

if TYPE_CHECKING:
    from benchmarks.rankers.tlp.fit import Tlp

NAME = "tlp"
FOLDS = 4  # in simulation: how many models are trained, each without a part of the workloads


def cost_model(settings: Settings) -> Any:
    """AutoScheduler's cost model over the fitted TLP; fits it first if the cache has none (minutes, once)."""
    from benchmarks.rankers.tlp.backend import cost_model
    from benchmarks.rankers.tlp.fit import Tlp

    return cost_model(Tlp.load(fitted(settings)))


def fitted(settings: Settings) -> Path:
    """The file of the TLP fitted to `settings.training`, made if need be."""
    from benchmarks.rankers.tlp import fit

    files = records.log_files(settings.training)
    if not files:
        raise ValueError("tlp needs training logs: give --training")
    path = settings.cache_path / f"tlp-{records.digest(files, settings.exclude)}.safetensors"
    if not path.exists():
        groups = [group for group in records.apart(files) if group.key not in settings.exclude]
        fit.fit(groups).save(path)
    return path


def scorer(settings: Settings, workload: Any) -> Tlp:
    """The same in simulation: fitted to the logs without the workload in question (and some others)."""
    return _fold(settings.training, settings.exclude, _place(workload.key))


def _place(key: str) -> int:
    return hashlib.sha256(key.encode()).digest()[0] % FOLDS


@functools.cache
def _fold(training: tuple[str, ...], exclude: tuple[str, ...], fold: int) -> Tlp:
    from benchmarks.rankers.tlp import fit

    groups = records.apart(training)
    return fit.fit([g for g in groups if g.key not in exclude and _place(g.key) != fold])
