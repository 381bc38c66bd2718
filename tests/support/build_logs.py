"""Logs to be built into datasets, and what a dataset holds."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from dataset_files import record_line


def make_logs(root: Path, *, workloads: int = 8, records: int = 60) -> Path:
    folder = root / "logs"
    folder.mkdir()
    for part in range(4):
        lines = [
            record_line(f"k{key}", 1e-3 * (1 + n + part * records)) + b"\n"
            for n in range(records // 4)
            for key in range(workloads)
        ]
        (folder / f"{part}.json").write_bytes(b"".join(lines) + b"{broken\n" + lines[0])
    return folder


def content(root: Path) -> dict[str, object]:
    """Every table's rows, the problems, and the manifest; files' bytes would show when libraries change."""
    found: dict[str, object] = {
        str(path.relative_to(root)): pq.read_table(path, partitioning=None).to_pylist()
        for path in sorted(root.rglob("*.parquet"))
    }
    found["problems"] = (root / "problems.txt").read_text()
    found["manifest"] = json.loads((root / "manifest.json").read_text())
    found["files"] = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return found
