"""Settings of a model's part as a bundle keeps them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from wmsched.base.errors import BundleError

T = TypeVar("T")


def from_dict(cls: type[T], values: dict[str, Any], part: str) -> T:
    """A dataclass from its ``dataclasses.asdict``. BundleError for unknown keys; `part` is whose they are."""
    unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})  # type: ignore[arg-type]
    if unknown:
        raise BundleError(f"unknown {part} settings {unknown}; written by another wmsched release?")
    return cls(**values)
