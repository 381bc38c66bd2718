"""`wmsched-data validate`: everything a dataset claims of itself, checked. Reports all problems, not the
first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_builder.build.manifest import checksums
from data_builder.derive.writer import stored_records
from wmsched.base.errors import DatasetError, LogError, WmschedError
from wmsched.learn.data.dataset import MANIFEST, Dataset, group_id, state_hash
from wmsched.schedules.any_steps import check_steps, decode_steps
from wmsched.schedules.types import Workload


def problems(root: Path) -> Iterator[str]:
    """What is wrong with the dataset in `root`, one text each; nothing when it is sound."""
    try:
        dataset = Dataset(root)
        workload_ids = dataset.workload_ids
    except DatasetError as error:
        yield str(error)
        return
    found: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    by_source: Counter[str] = Counter()
    for workload_id in workload_ids:
        try:
            yield from _workload(dataset, workload_id, found, kinds, by_source)
        except (WmschedError, ValueError, TypeError) as error:
            yield f"workload {workload_id}: {error}"
    yield from _files(root, set(workload_ids))
    yield from _checksums(root, dataset)
    yield from _totals(dataset.manifest, found, kinds, by_source)


def _workload(
    dataset: Dataset, workload_id: str, found: Counter[str], kinds: Counter[str], by_source: Counter[str]
) -> Iterator[str]:
    where = f"workload {workload_id}"
    row = dataset.row(workload_id)
    found["workloads"] += 1
    key = row["workload_key"]
    right = (
        group_id(key, row["target"], row["hardware"], row["threads"])
        if dataset.version > 1
        else Workload(key=key).id
    )
    if right != workload_id:
        yield f"{where}: its id is not that of its key {key!r} and machine"
    stages = dataset.workload(workload_id).stages
    states = dataset.states(workload_id)
    found["states"] += len(states)
    for name, text in states.items():
        if state_hash(text) != name:
            yield f"{where}: state {name} has another text than its hash says"
    used = {row["s0"]} - {""}
    if row["s0"] and row["s0"] not in states:
        yield f"{where}: its initial state {row['s0']} is missing"
    if dataset.version > 2:
        foreign = {row["workload_id"] for row in stored_records(dataset, workload_id)} - {workload_id}
        yield from (f"{where}: holds records of {name}" for name in sorted(foreign))
    sources = dataset.sources(workload_id)
    trajectories = dataset.trajectories(workload_id)
    if not trajectories:
        yield f"{where}: it has no records"
    for (source, line), trajectory in zip(sources, trajectories, strict=True):
        place = f"{where}, {source}:{line}"
        found["records"] += 1
        found["steps"] += len(trajectory.steps)
        found["replayed"] += bool(trajectory.states)
        kinds[trajectory.measurement.kind] += 1
        by_source[source] += 1
        used.update(trajectory.states)
        try:
            check_steps(trajectory.steps)
            texts = tuple(action.text for action in decode_steps(trajectory.steps, stages))
        except LogError as error:
            yield f"{place}: {error.reason}"
            continue
        if len(trajectory.action_texts) != len(texts):
            yield f"{place}: {len(texts)} steps and {len(trajectory.action_texts)} action texts"
        elif trajectory.action_texts != texts:
            yield f"{place}: this wmsched words its actions otherwise; build the dataset again"
        if trajectory.states:
            if len(trajectory.states) != len(trajectory.steps) + 1:
                yield f"{place}: {len(trajectory.steps)} steps and {len(trajectory.states)} states"
            if trajectory.states[0] != row["s0"]:
                yield f"{place}: begins in {trajectory.states[0]}, the workload in {row['s0']}"
            missing = [name for name in trajectory.states if name not in states]
            if missing:
                yield f"{place}: {len(missing)} of its states are missing, the first {missing[0]}"
    # A record that TVM refused half-way leaves the states before that point, so unused ones are no damage.


def _files(root: Path, workload_ids: set[str]) -> Iterator[str]:
    for folder in ("trajectories", "states"):
        here = {path.name.removesuffix(".parquet") for path in (root / folder).glob("[!.]*")}
        yield from (
            f"{folder}/{name}: of no workload in workloads.parquet" for name in sorted(here - workload_ids)
        )


def _checksums(root: Path, dataset: Dataset) -> Iterator[str]:
    if dataset.version == 1:  # it has none
        return
    claimed, found = dataset.manifest.get("files"), checksums(root)
    if not isinstance(claimed, dict):
        yield f"{MANIFEST}: it has no checksums"
        return
    for path in sorted(set(claimed) | set(found)):
        if path not in found:
            yield f"{path}: missing"
        elif path not in claimed:
            yield f"{path}: not in the manifest's list of files"
        elif claimed[path] != found[path]:
            yield f"{path}: another content than its checksum in {MANIFEST} says"


def _totals(
    manifest: Mapping[str, Any], found: Counter[str], kinds: Counter[str], by_source: Counter[str]
) -> Iterator[str]:
    try:
        totals = manifest["totals"]
        for name in ("workloads", "records", "states", "steps", "replayed"):
            if totals[name] != found[name]:
                yield f"{MANIFEST}: {name} is {totals[name]}, the files hold {found[name]}"
        if totals["errors_by_kind"] != dict(kinds):
            yield f"{MANIFEST}: errors_by_kind is {totals['errors_by_kind']}, the files hold {dict(kinds)}"
        for source in manifest["sources"]:
            path, held = source["path"], by_source.pop(source["path"], 0)
            if source["records"] != held:
                yield f"{MANIFEST}: {path} has {source['records']} records, the files hold {held}"
        yield from (
            f"{MANIFEST}: source {path} of {held} records is missing" for path, held in by_source.items()
        )
        if not all(
            isinstance(totals[name], int) and not math.isnan(totals[name]) for name in ("lines", "bad")
        ):
            yield f"{MANIFEST}: lines and bad must be counts"
    except (KeyError, TypeError) as error:
        yield f"{MANIFEST}: a part is missing or of another type: {error!r}"
