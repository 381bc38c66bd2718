"""`wmsched-data split`: a dataset into parts that share no program, and the check that they do not.

Records of one workload are near copies of each other, and so are the layers of one network; a split by record
would measure memory. Whole networks go to a part, or whole workloads; a workload's key is the same on every
machine, so all its rank groups go together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from data_builder.derive.writer import Derived, Row, finished, stored_records, stored_states
from wmsched.base.errors import DatasetError
from wmsched.base.union_find import representative
from wmsched.learn.data.dataset import MANIFEST, Dataset, group_id, trajectories_path
from wmsched.schedules.types import Workload

BY = ("network", "workload")


def parse_parts(spec: str) -> dict[str, float | tuple[str, ...]]:
    """Read `train=0.8,test=0.2` (shares) or `test=resnet50+bert,train=rest` (names of networks; `rest` once).

    Raises
    ------
    DatasetError
        It is neither, or the shares do not add up to 1.
    """
    parts: dict[str, float | tuple[str, ...]] = {}
    for term in spec.split(","):
        name, equals, value = term.strip().partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum() or not value or name in parts:
            raise DatasetError(f"--parts {term!r} is not name=share or name=network+network, each name once")
        try:
            parts[name] = float(value)
        except ValueError:
            parts[name] = tuple(value.split("+"))
    shares = [value for value in parts.values() if isinstance(value, float)]
    if shares and (len(shares) < len(parts) or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6):
        raise DatasetError(
            f"--parts {spec!r}: shares must be above 0, add up to 1, and be given for every part"
        )
    if not shares and sum(value == ("rest",) for value in parts.values()) > 1:
        raise DatasetError(f"--parts {spec!r}: only one part can be the rest")
    return parts


def split(
    root: Path,
    out: Path,
    parts: Mapping[str, float | Sequence[str]],
    *,
    by: str = "network",
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Write a dataset for each part, in `out/<part>`; the same call goes on where it was stopped.

    Parameters
    ----------
    root : Path
        A finished dataset.
    out : Path
        Directory of the parts.
    parts : mapping
        Share of the records of each part, or the names of its networks (or workload keys, `by="workload"`).
    by : str
        "network" or "workload": what stays together. Networks that share a program stay together as well.
    seed : int
        Of the deal; the same seed and dataset give the same parts.

    Returns
    -------
    dict
        The manifest of each part.

    Raises
    ------
    DatasetError
        The parts would share a program, a part would be empty, or a name is unknown.
    """
    dataset = Dataset(root)
    if by not in BY:
        raise DatasetError(f"--by {by!r} is none of {', '.join(BY)}")
    clusters = _clusters(dataset, by)
    dealt = _deal(dataset, clusters, parts, by=by, seed=seed)
    manifests = {}
    for part in parts:
        ids = sorted(dealt[part])
        made = {"command": "split", "inputs": [str(root)], "part": part, "by": by, "seed": seed}
        made["content"] = _content(root, ids)
        # a run that was stopped goes on: what it finished of the same records is not written again
        manifests[part] = finished(out / part, made) or _write(dataset, ids, out / part, made)
    shared = list(leaks([out / part for part in parts], networks=by == "network"))
    if shared:  # cannot be, and is worth more than the proof that it cannot
        raise DatasetError(f"the parts in {out} leak, do not use them: {shared[0]}")
    return manifests


def program(row: Mapping[str, Any]) -> str:
    """Hash of what a workload computes, whatever its key; "" where its stages are not known.

    A key is a hash of how one version of TVM prints the compute DAG, names of axes included: one program may
    have several.
    """
    stages = Workload.stages_from_json(row["stages"]) if row["stages"] else ()
    if not stages:
        return ""
    whole = [
        [
            stage.kind,
            [[one.extent, one.kind] for one in stage.iters],
            [[read.stage, sorted(read.shape)] for read in stage.reads],
            sorted(map(list, stage.ops)),
            sorted(stage.shape),
            stage.dtype_bytes,
        ]
        for stage in stages
    ]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


def _networks(row: Mapping[str, Any]) -> list[str]:
    """All the networks of a workload that are known."""
    return [name for name in dict.fromkeys((row["network"], *row["networks"])) if name]


def _clusters(dataset: Dataset, by: str) -> dict[str, list[str]]:
    """Workload ids that must stay together, by the first name among them."""
    rows = {workload_id: dataset.row(workload_id) for workload_id in dataset.workload_ids}
    if by == "network":
        for workload_id, row in rows.items():
            if not row["network"]:
                raise DatasetError(
                    f"{dataset.root}: workload {workload_id} has no network, so a split by network could "
                    "leak one; split --by workload, or build with a workloads file that names networks"
                )
    pairs = [
        (f"key {row['workload_key']}", f"program {name}") for row in rows.values() if (name := program(row))
    ]
    if by == "network":
        named = [(row["workload_key"], name) for row in rows.values() for name in _networks(row)]
        pairs += [(f"network {name}", f"key {key}") for key, name in named]
    find = representative(pairs)
    clusters: dict[str, list[str]] = {}
    for workload_id, row in rows.items():
        clusters.setdefault(find(f"key {row['workload_key']}"), []).append(workload_id)
    return clusters


def _deal(
    dataset: Dataset,
    clusters: Mapping[str, list[str]],
    parts: Mapping[str, float | Sequence[str]],
    *,
    by: str,
    seed: int,
) -> dict[str, list[str]]:
    dealt: dict[str, list[str]] = {part: [] for part in parts}
    labels = _networks if by == "network" else lambda row: [row["workload_key"]]
    named = {part: tuple(value) for part, value in parts.items() if not isinstance(value, float)}
    if named:
        owner = {name: part for part, names in named.items() for name in names if names != ("rest",)}
        rest = next((part for part, names in named.items() if names == ("rest",)), None)
        known = {name for ids in clusters.values() for i in ids for name in labels(dataset.row(i))}
        unknown = sorted(set(owner) - known)
        if unknown or len(owner) < sum(len(names) for names in named.values() if names != ("rest",)):
            raise DatasetError(f"{dataset.root} has no {by} {unknown}, or a part names one of another part")
        for ids in clusters.values():
            names = {name for workload_id in ids for name in labels(dataset.row(workload_id))}
            wanted = {owner.get(name, rest) for name in names}
            if len(wanted) > 1:
                raise DatasetError(
                    f"{', '.join(sorted(names))} share a program, so they cannot be in different parts: "
                    "it would leak from one into the other"
                )
            part = wanted.pop()
            if part is not None:
                dealt[part] += ids
    else:
        counts = {name: sum(_count(dataset, i) for i in ids) for name, ids in clusters.items()}
        total = sum(counts.values())
        room = {part: float(value) * total for part, value in parts.items() if isinstance(value, float)}
        order = sorted(clusters, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
        for place, name in enumerate(order):
            empty = [part for part in parts if not dealt[part]]
            last = len(order) - place <= len(empty)  # what is left must fill the empty ones
            part = max(empty if last else parts, key=lambda part: room[part])
            dealt[part] += clusters[name]
            room[part] -= counts[name]
    for part, ids in dealt.items():
        if not ids:
            raise DatasetError(f"part {part!r} would be empty: {len(clusters)} groups of workloads to deal")
    return dealt


def _count(dataset: Dataset, workload_id: str) -> int:
    return int(pq.read_metadata(trajectories_path(dataset.root, workload_id)).num_rows)


def _content(root: Path, ids: Sequence[str]) -> str:
    """Hash of the dataset and of which of its rank groups go to a part."""
    digest = hashlib.sha256((root / MANIFEST).read_bytes())
    digest.update(" ".join(ids).encode())
    return digest.hexdigest()


def _write(dataset: Dataset, ids: Sequence[str], out: Path, made: Mapping[str, Any]) -> dict[str, Any]:
    with Derived(out, made) as derived:
        for entry in dataset.manifest["sources"]:
            derived.add_source(entry["path"], entry)
        for workload_id in ids:
            row: Row = dict(dataset.row(workload_id))
            row["workload_id"] = group_id(row["workload_key"], row["target"], row["hardware"], row["threads"])
            derived.group(row, stored_records(dataset, workload_id), stored_states(dataset, workload_id))
        return derived.finish()


def leaks(roots: Sequence[Path], *, networks: bool = True) -> Iterator[str]:
    """What datasets share that parts of a split must not: keys and, with `networks`, networks."""
    labels: list[tuple[str, Callable[[Mapping[str, Any]], list[str]]]] = [
        ("workload", lambda row: [row["workload_key"]]),
        ("program", lambda row: [program(row)]),
    ]
    if networks:
        labels.append(("network", _networks))
    for what, of in labels:
        owner: dict[str, Path] = {}
        for root in roots:
            dataset = Dataset(root)
            names = {name for workload_id in dataset.workload_ids for name in of(dataset.row(workload_id))}
            for name in sorted(names - {""}):
                if owner.setdefault(name, root) != root:
                    yield f"{what} {name} is in {owner[name]} and in {root}"
