"""Lazy public face of a package: each name is imported from its module at first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy"]


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose public names live in its modules.

    Importing a package then costs nothing: torch and TVM are loaded when a name first needs them.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    names : mapping of str to str
        Module of each public name: relative to the package, or a full name.

    Examples
    --------
    >>> __getattr__, __dir__ = lazy(__name__, {"TaskScheduler": "task_scheduler"})
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = names[name]
        full = module if module.startswith("wmsched.") else f"{package}.{module}"
        return getattr(importlib.import_module(full), name)

    def listed() -> list[str]:
        return sorted(names)

    return get, listed
