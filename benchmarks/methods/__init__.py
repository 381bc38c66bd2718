"""Compared methods: one small module each, which gives a cost model to the same search.

A module has `NAME`, `cost_model(settings)` for a real run (imports TVM) and `scorer(settings, workload)`
for a simulated one (does not); MetaSchedule's, whose names begin with `meta-`, have the first only, and may
have `strategy(model)` and `space(target)`, a search and spaces in place of the stock ones. Those of a user's
script, whose names end in `-script`, have `scheduler(settings, tasks)` instead, and `prepare(settings)` where
something is to be done once before; or MetaSchedule's `tune(settings, ...)`, called as `tune_tir` is, and
`HOW`, of the result line: they decide rounds and timing themselves. A method on the command line is a name,
or `name@bundle` for one with a model of its own: `wmsched@work/bundles/no-phi` runs an ablation beside the
full model.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wmsched.base.errors import UnknownName

Steps = list[list[Any]]

MODULES = {
    "ansor": "ansor",
    "random": "random",
    "tenset": "tenset",
    "tlp": "tlp",
    "wmsched": "wmsched",
    "wmsched-online": "wmsched_online",
    "ansor-script": "ansor_script",
    "tenset-script": "tenset_script",
    "wmsched-script": "wmsched_script",
    "wmsched-online-script": "wmsched_online_script",
    "meta-xgb": "meta.xgb",
    "meta-random": "meta.random",
    "meta-wmsched": "meta.wmsched",
    "meta-wmsched-online": "meta.wmsched_online",
    "meta-wmsched-search": "meta.wmsched_search",
    "meta-wmsched-parts": "meta.wmsched_parts",
    "meta-xgb-script": "meta.xgb_script",
    "meta-wmsched-script": "meta.wmsched_script",
}
META = "meta-"  # methods of MetaSchedule's search; they are set against each other only
SCRIPT = "-script"  # so are those that are a whole TaskScheduler or `tune_tir` with its defaults
FITTED = ("tenset", "tenset-script", "tlp")  # to the training logs, once; the model is kept in the cache
NEED_BUNDLE = tuple(name for name in MODULES if "wmsched" in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a method may depend on.

    Attributes
    ----------
    seed, round_size : int
        Of the run.
    bundle : str
        Name or folder of a world model, for the methods that have one.
    training : tuple of str
        Log files that `tenset` and `tlp` are fitted to, and `workloads`, the open JSON files that describe
        their workloads, which `tenset` needs.
    exclude : tuple of str
        Workload keys that must not be learned from: the benchmark's own.
    cache : str
        A folder for what is fitted once.
    """

    seed: int = 0
    round_size: int = 64
    bundle: str = ""
    training: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    exclude: tuple[str, ...] = field(default=(), repr=False)
    cache: str = "benchmarks/results/cache"

    @property
    def cache_path(self) -> Path:
        path = Path(self.cache)
        path.mkdir(parents=True, exist_ok=True)
        return path


class Scorer(Protocol):
    """A method in a simulated run: scores candidates of one workload by their transform steps."""

    def score(self, steps: Sequence[Steps]) -> NDArray[np.float64]:
        """float [len(steps)], higher is better."""
        ...

    def observe(self, steps: Sequence[Steps], seconds: NDArray[np.float64]) -> None:
        """Learn from a round's measurements (NaN: failed), if the method does that."""
        ...


def split(method: str) -> tuple[str, str]:
    """`name@bundle` as (name, bundle); the bundle is "" if none is given. UnknownName for an unknown name."""
    name, _, bundle = method.partition("@")
    if name not in MODULES:
        raise UnknownName(f"no method is called {name!r}; the methods are {', '.join(MODULES)}")
    return name, bundle


def kin(method: str) -> str:
    """What the method may be set against: methods of the same answer, of `META` and `SCRIPT` what applies."""
    name = method.partition("@")[0]
    return (META if name.startswith(META) else "") + (SCRIPT if name.endswith(SCRIPT) else "")


def module(method: str) -> ModuleType:
    """The module of a method."""
    return importlib.import_module(f"{__name__}.{MODULES[split(method)[0]]}")
