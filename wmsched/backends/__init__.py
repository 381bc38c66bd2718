"""Old import paths, one version more: each gives its module's new place, and says so.

Remove this package and `wmsched/resolve.py` in 0.3.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

__all__ = ["MOVED"]

#: What README and docs named until 0.1, and where it is now.
MOVED = {
    "wmsched.backends.auto_scheduler": "wmsched.ansor.task_scheduler",
    "wmsched.backends.meta_runner": "wmsched.metaschedule.measure.runner",
    "wmsched.backends.meta_schedule": "wmsched.metaschedule.cost_model",
    "wmsched.backends.meta_tune": "wmsched.metaschedule.tune",
    "wmsched.backends.tir_workload": "wmsched.metaschedule.workload",
    "wmsched.resolve": "wmsched.toolchain.resolve",
}


def warn(old: str, level: int = 2) -> str:
    """Warn that `old` has moved, and return its new name."""
    new = MOVED[old]
    warnings.warn(
        f"{old} is now {new}; the old name goes in wmsched 0.3", DeprecationWarning, stacklevel=level
    )
    return new


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module of an old name, and loads the one that took its place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MOVED:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(warn(spec.name, level=6))
        self.own = module.__spec__  # importlib is about to put the old name's in its place
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own


sys.meta_path.append(_Moved())
