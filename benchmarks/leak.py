"""Check that refuses a model trained on its test set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wmsched import zoo
from wmsched.base.errors import BundleError


def workload_hash(key: str) -> str:
    """What a data fingerprint holds of a workload: the sha256 of its key."""
    return hashlib.sha256(key.encode("utf-8")).hexdigest()


def read_fingerprint(bundle: Path) -> dict[str, Any]:
    """The data fingerprint in a bundle's config.json.

    Raises
    ------
    BundleError
        It is not there or lists no workloads: such a bundle cannot be shown to be innocent.
    """
    path = bundle / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be read ({error}); name a bundle's folder") from error
    found = _find(config)
    if found is None:
        raise BundleError(
            f"{path} has no data fingerprint, so nobody can tell whether it has seen the benchmark; "
            "train it again from a dataset directory"
        )
    parts = _find({"fingerprint": config.get("parts_fingerprint")}) or {}  # what E and F have seen
    return {**found, "workloads": sorted({*found["workloads"], *parts.get("workloads", ())})}


def _find(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The mapping with a list of `workloads` hashes, at the top or below one of the config's keys."""
    for name in ("fingerprint", "data_fingerprint", "data"):
        value = config.get(name)
        if isinstance(value, dict):
            if isinstance(value.get("workloads"), list):
                return value
            below = _find(value)
            if below is not None:
                return below
    return None


def bundle_digest(bundle: Path) -> str:
    """A short name for exactly this model, for result lines: a hash over the bundle's files."""
    digest = hashlib.sha256()
    for path in sorted(bundle.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            digest.update(str(path.relative_to(bundle)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def check(fingerprint: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], *, model: str) -> None:
    """Raise BundleError if any of the tasks (rows of a workload file with a `name`) is in the fingerprint."""
    seen = set(fingerprint["workloads"])
    leaked = [task["name"] for task in tasks if seen & {workload_hash(key) for key in zoo.keys(task)}]
    if leaked:
        raise BundleError(
            f"{model} was trained on {len(leaked)} of the tasks to be measured ({', '.join(leaked[:5])}"
            f"{', ...' if len(leaked) > 5 else ''}): its results would mean nothing. "
            "Train it without those workloads, or leave those tasks out"
        )
