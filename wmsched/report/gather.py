"""All numbers of a report, as JSON has them: what the page and the terminal show is read from these alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wmsched.measure.roofline import Roofline
from wmsched.report.history import curve, left_alone, read_records
from wmsched.report.limits import WAITS, limits_of, spent_on
from wmsched.report.profiler import Profile
from wmsched.tune import folder as tuned_folder
from wmsched.tune.in_model_selection import PREPACKED

__all__ = ["gather"]


def gather(
    folder: Path,
    profile: Profile,
    machine: Roofline,
    *,
    why_unknown: str = "",
    compared: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Put together what a folder says and what was measured of it; seconds, operations and bytes.

    Parameters
    ----------
    why_unknown : str
        Why operations are not known; "" where they are.
    compared : mapping, optional
        As `wmsched.report.compare.compare` returns it.
    """
    told = json.loads((folder / tuned_folder.REPORT).read_text(encoding="utf-8"))
    limits = limits_of(profile, machine)
    tasks = {task["name"]: task for task in told["tasks"]}
    rows = []
    for row, limit in zip(profile.rows, limits, strict=True):
        task = tasks.get(row.name) or tasks.get(PREPACKED.sub("", row.name)) or {}
        rows.append(
            asdict(row)
            | {
                "share": profile.share(row),
                "gflops": row.gflops,
                "gbs": row.gbs,
                "limit": asdict(limit) | {"seconds": limit.seconds},
                "over": row.seconds - limit.seconds,
                "trials": task.get("trials"),
                "how": task.get("how"),
                "alone": None if task.get("seconds") is None else task["seconds"] * row.calls,
            }
        )
    records = read_records(folder)
    seconds = {name: value for name, value in told["seconds"].items() if value is not None}
    found = {
        "model": told["model"],
        "tuned": told["date"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": told["target"],
        "threads": told["threads"],
        "versions": told["versions"],
        "constructed": told.get("construct_seconds") is not None,
        "profile": {key: value for key, value in asdict(profile).items() if key != "rows"},
        "functions": rows,
        "waits": spent_on(profile.rows, limits),
        "meaning": WAITS,
        "machine": asdict(machine) | {"memory": machine.gbs(profile.memory)},
        "why_unknown": why_unknown,
        "then": seconds,
        "library": told["library"],
        "compared": None if compared is None else dict(compared),
        "search": {
            "trials": sum(task["trials"] for task in told["tasks"]),
            "failed": sum(task["failed"] for task in told["tasks"]),
            "seconds": told.get("search_seconds") or 0.0,
            "construct_seconds": told.get("construct_seconds"),
            "curve": curve(records, told["tasks"]),
        },
        "left": left_alone(told),
    }
    return _known(found)  # type: ignore[no-any-return]


def _known(value: Any) -> Any:
    """What JSON has: null in the place of NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    return [_known(one) for one in value] if isinstance(value, (list, tuple)) else value
