"""What a parcel's files are called and hold; see `wmsched.backends.parcel`."""

from __future__ import annotations

from pathlib import Path

import orjson

from wmsched.backends.parcel_time import DEVICE, SECONDS
from wmsched.hardware import cuda_target


def seconds(folder: Path) -> dict[str, list[float]]:
    """What the other machine timed, by key; [] for a program that failed there."""
    path = folder / SECONDS
    if not path.exists():
        return {}
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    return {row["key"]: row.get("seconds", []) for row in rows}


def device_model(folder: Path) -> str:
    """The `model` of the CUDA target of the GPU that a parcel was timed on; "" for a processor."""
    path = folder / DEVICE
    told = orjson.loads(path.read_bytes()) if path.exists() else {}
    return str(cuda_target(told["name"], told["capability"])["model"]) if told.get("name") else ""
