"""Datasets to be merged, and what is counted of the result."""

from __future__ import annotations

import json
from pathlib import Path

from dataset_files import quiet

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from wmsched.learn.data.dataset import Dataset


def make(root: Path, name: str, lines: list[bytes]) -> Path:
    log = root / f"{name}-log" / "log.json"  # the same file name in each
    log.parent.mkdir()
    log.write_bytes(b"\n".join(lines))
    build([str(log)], root / name, BuildOptions(jobs=1), quiet())
    return root / name


def counts(root: Path) -> dict[tuple[str, str], int]:
    dataset = Dataset(root)
    return {(w.key, w.target): len(dataset.trajectories(w.id)) for w in dataset.workloads()}


def accounted(root: Path) -> bool:
    manifest = json.loads((root / "manifest.json").read_text())
    return all(
        entry["lines"] == sum(entry[part] for part in ("records", "bad", "duplicates", "excluded"))
        for entry in [*manifest["sources"], manifest["totals"]]
    )
