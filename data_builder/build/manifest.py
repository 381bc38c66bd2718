"""The end of a build: the workloads table, the list of problems, and the manifest, in this order."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from data_builder.base.store import TableWriter, remove_partials, write_json
from data_builder.build.trajectories import done_path, problems_path
from wmsched.learn.data.dataset import FORMAT_VERSION, MANIFEST, WORKLOADS

PROBLEMS = "problems.txt"
BAD_LINES = "bad_lines.txt"  # in the scratch directory: what the scan refused


def finish(scanned: Mapping[str, Any], plan: str, out: Path, scratch: Path) -> dict[str, Any]:
    """Write workloads.parquet, the problems and the manifest; remove the scratch directory."""
    sources = {
        entry["path"]: {**entry, "records": 0, "duplicates": 0, "errors_by_kind": {}}
        for entry in scanned["sources"]
    }
    totals: Counter[str] = Counter(
        workloads=0,
        records=0,
        lines=0,
        bad=0,
        duplicates=0,
        excluded=0,
        steps=0,
        states=0,
        replayed=0,
        replay_failed=0,
    )
    kinds: Counter[str] = Counter()
    with (
        TableWriter(out / "workloads.parquet", WORKLOADS) as table,
        open(out / PROBLEMS, "wb") as problems,
    ):
        _append(problems, scratch / BAD_LINES)
        for name in sorted(scanned["workloads"]):
            done = orjson.loads(done_path(scratch, name).read_bytes())
            _append(problems, problems_path(scratch, name))
            if done["workload"] is not None:  # else no line of it is kept; they are counted all the same
                table.add(done["workload"])
                totals["workloads"] += 1
            totals.update({count: done[count] for count in ("steps", "states", "replayed", "replay_failed")})
            for path, counts in done["sources"].items():
                entry = sources[path]
                for count, number in counts.items():
                    if count.startswith("kind:"):
                        kind = count.removeprefix("kind:")
                        entry["errors_by_kind"][kind] = entry["errors_by_kind"].get(kind, 0) + number
                        kinds[kind] += number
                    else:
                        entry[count] += number
    for entry in sources.values():
        totals.update(
            {count: entry[count] for count in ("lines", "records", "bad", "duplicates", "excluded")}
        )
    manifest = {
        "plan": plan,
        "sources": list(sources.values()),
        "totals": {**totals, "errors_by_kind": kinds},
        "libraries": libraries(),
    }
    written = write_manifest(out, manifest)
    shutil.rmtree(scratch, ignore_errors=True)
    return written


def _append(stream: BinaryIO, path: Path) -> None:
    with open(path, "rb") as part:  # a block at a time: a broken collection has more bad lines than memory
        shutil.copyfileobj(part, stream, 1 << 20)


def write_manifest(out: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Add format version and checksums, and write it: from then on the dataset in `out` is complete."""
    remove_partials(out)
    whole = {**manifest, "format_version": FORMAT_VERSION, "files": checksums(out)}
    write_json(out / MANIFEST, whole, indent=True)
    return whole


def checksums(out: Path) -> dict[str, dict[str, Any]]:
    """Bytes and sha256 of each data file of the dataset in `out`, by path within it."""
    found = {}
    for path in sorted([*out.rglob("*.parquet"), *out.glob(PROBLEMS)]):
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        found[path.relative_to(out).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
    return found


def libraries() -> dict[str, str]:
    """Versions of what wrote the dataset."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("pyarrow", "wmsched", "hhb-tvm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
