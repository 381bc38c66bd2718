"""Functions of a library wrapped in this process, because the library looks them up by name at each use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["wrap_results"]


def wrap_results(owner: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Have ``owner.name`` return `around` of what it returned so far; a second call changes nothing.

    Parameters
    ----------
    owner
        Module or class.
    """
    original = getattr(owner, name)
    if getattr(original, "wmsched", False):
        return

    @functools.wraps(original)
    def replaced(*arguments: Any, **named: Any) -> Any:
        return around(original(*arguments, **named))

    replaced.wmsched = True  # type: ignore[attr-defined]
    setattr(owner, name, replaced)
