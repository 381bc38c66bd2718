"""The public face of a room: names that are imported from their modules when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy"]


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose public names live in its modules.

    Importing a room then costs nothing: neither torch nor a TVM is loaded before a name needs it.

    Parameters
    ----------
    package : str
        Full name of the package, its ``__name__``.
    names : mapping of str to str
        Each public name, and the module that has it: relative to the package, or a full name.

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
