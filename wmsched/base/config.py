"""Build the configuration dataclasses of a model from the settings that a bundle stores."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from wmsched.base.errors import BundleError

T = TypeVar("T")


def from_dict(cls: type[T], values: dict[str, Any], part: str) -> T:
    """Return a `cls` built from `values`, its ``dataclasses.asdict``; inverse of that function.

    Parameters
    ----------
    part : str
        The part of the model that the settings belong to, for the error text.

    Raises
    ------
    BundleError
        `values` has keys that `cls` does not know.
    """
    unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})  # type: ignore[arg-type]
    if unknown:
        raise BundleError(f"unknown {part} settings {unknown}; written by another wmsched release?")
    return cls(**values)
