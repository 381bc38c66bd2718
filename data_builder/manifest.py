"""The end of a build: the workloads table, the list of problems, and the manifest, in this order."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from data_builder.store import TableWriter, remove_partials, write_json
from data_builder.trajectories import done_path, problems_path
from wmsched.dataset import FORMAT_VERSION, MANIFEST, WORKLOADS

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
        open(out / PROBLEMS, "w", encoding="utf-8") as problems,
    ):
        problems.write((scratch / BAD_LINES).read_text(encoding="utf-8"))
        for name in sorted(scanned["workloads"]):
            done = orjson.loads(done_path(scratch, name).read_bytes())
            problems.write(problems_path(scratch, name).read_text(encoding="utf-8"))
            if done["workload"] is None:  # every line of it was refused
                continue
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
        "format_version": FORMAT_VERSION,
        "plan": plan,
        "sources": list(sources.values()),
        "totals": {**totals, "errors_by_kind": kinds},
        "libraries": _libraries(),
    }
    remove_partials(out)
    write_json(out / MANIFEST, manifest, indent=True)
    shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def _libraries() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("pyarrow", "wmsched", "hhb-tvm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
