"""The workloads file: which tasks there are, and their compute DAGs.

The open form is a JSON list (compressed with gzip or not) of rows with `workload_key`, `tensors` (TVM's JSON
of the DAG) and labels. TenSet published pickles; `from_pickle` converts one that the user trusts.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.replay import last_line
from data_builder.base.store import write_bytes
from data_builder.read.old_pickles import STAND_INS, Task
from wmsched.base.errors import DatasetError, WmschedError
from wmsched.schedules.workload_file import load_rows
from wmsched.toolchain.resolve import autoscheduler_tvm


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of `every_row` by workload key (the first, where a key occurs twice)."""
    rows: dict[str, dict[str, Any]] = {}
    for row in every_row(path):
        rows.setdefault(row["workload_key"], row)
    return rows


def every_row(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON workloads file: tasks of one workload, each with its own log, are as many rows.

    Raises
    ------
    DatasetError
        The file is missing, a pickle, or no list of rows with their keys.
    """
    if not path.is_file():
        raise DatasetError(f"no workloads file {path}")
    if is_pickle(path):
        raise DatasetError(
            f"{path} is a pickle: loading it runs the code in it. If you trust where it comes from, "
            "make a JSON file of it with "
            f"`wmsched-data export-workloads {path} --out workloads.json.gz --trust-pickle`"
        )
    return load_rows(path, needs=("workload_key",))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a workloads file, compressed where its name ends in .gz; equal rows make equal files."""
    data = orjson.dumps([dict(row) for row in rows])
    write_bytes(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def export(sources: Sequence[str], *, trust_pickle: bool = False) -> list[dict[str, Any]]:
    """Rows of several sources, each workload key once, with the name of its network where any has it.

    A task that several networks share is the first one's, and has `networks`: all of them, with its weight in
    each.

    Parameters
    ----------
    sources : sequence of str
        JSON workloads files; pickles of search tasks; folders of these (TenSet's `network_info`, or the
        folder above it); "zoo" for the benchmark's tasks.
    trust_pickle : bool
        Pickles may be loaded.

    Raises
    ------
    DatasetError
        A source is no such thing, or a pickle that is not trusted.
    WmschedError
        A pickle cannot be converted.
    """
    rows = merged(row for source in sources for row in _rows_of(source, trust_pickle))
    return [{**row, "id": place} for place, row in enumerate(rows)]


def merged(several: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows, each workload key once: the first one's, with the `networks` of all."""
    rows: dict[str, dict[str, Any]] = {}
    for row in several:
        known = rows.setdefault(row["workload_key"], row)
        if known is row or row.get("network") in UNNAMED:
            continue
        networks = _networks(known)
        for name, weight in _networks(row).items():
            networks.setdefault(name, weight)
        if known.get("network") in UNNAMED:
            known.update({name: row[name] for name in ("network", "weight", "desc") if row.get(name)})
        if len(networks) > 1:
            known["networks"] = networks
    return list(rows.values())


def _networks(row: dict[str, Any]) -> dict[str, Any]:
    """All the networks of a row with its weight in each."""
    if row.get("network") in UNNAMED:
        return {}
    return dict(row.get("networks") or {row["network"]: row.get("weight") or 1})


#: TenSet's file of all tasks says nothing of their networks.
UNNAMED = (None, "", "all_tasks")


def _rows_of(source: str, trust_pickle: bool) -> Iterator[dict[str, Any]]:
    if source == "zoo":
        from wmsched import zoo

        yield from (dict(row) for row in zoo.rows())
        return
    path = Path(source)
    if path.is_dir():
        inner = path / "network_info" if (path / "network_info").is_dir() else path
        found = sorted(inner.glob("*.task.pkl")) + sorted(inner.glob("all_tasks.pkl"))
        if not found:
            raise DatasetError(f"no *.task.pkl and no all_tasks.pkl in {inner}; name the files themselves")
        for entry in found:
            yield from _rows_of(str(entry), trust_pickle)
    elif path.is_file() and is_pickle(path):
        if not trust_pickle:
            raise DatasetError(
                f"{path} is a pickle: loading it runs the code in it. "
                "If you trust where it comes from, pass --trust-pickle"
            )
        yield from from_pickle(path)
    else:
        yield from every_row(path)


def is_pickle(path: Path) -> bool:
    """Whether a file is a pickle, by its name or its first bytes; nothing is loaded."""
    with open(path, "rb") as stream:
        head = stream.read(2)
    return path.suffix in (".pkl", ".pickle") or (head[:1] == b"\x80" and 2 <= head[-1] <= 5)


class _Unpickler(pickle.Unpickler):
    """Loads TVM's objects and nothing else, so that trust need not reach further than TVM."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in STAND_INS:
            return STAND_INS[module, name]
        tvm = autoscheduler_tvm()
        if module.partition(".")[0] == "tvm" and "." not in name:
            found = super().find_class(module, name)
            allowed = (tvm.runtime.Object, tvm.runtime.String)
            if found is tvm.runtime.object._new_object or (
                isinstance(found, type) and issubclass(found, allowed)
            ):
                return found
        raise WmschedError(f"the pickle asks for {module}.{name}, which no pickle of search tasks needs")


def from_pickle(path: Path) -> list[dict[str, Any]]:
    """Rows of the search tasks in a pickle. Only for a file that the user says is to be trusted.

    As the benchmark's rows (`wmsched.zoo`) they have the `upstream_key`, which logs of another TVM may say.

    Raises
    ------
    WmschedError
        It cannot be loaded, holds something other than TVM objects, or no search tasks.
    """
    tvm = autoscheduler_tvm()
    from wmsched.ansor.dense_layout import upstream_key

    try:
        with open(path, "rb") as stream:
            loaded = _Unpickler(stream).load()
    except WmschedError as error:
        raise WmschedError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle raises anything
        raise WmschedError(f"{path} cannot be unpickled: {type(error).__name__}: {error}") from error
    rows: dict[str, dict[str, Any]] = {}
    for task, weight in _tasks(loaded):
        state = task.state
        key = str(state["workload_key"])
        if key in rows:
            continue
        try:
            dag = state["compute_dag"].made(tvm)
        except Exception as error:  # TVM's have no common base
            raise WmschedError(
                f"{path}: TVM {tvm.__version__} cannot make the compute graph of {state.get('desc') or key} "
                f"({last_line(error)}); make the pickle with a TVM nearer to it"
            ) from error
        rows[key] = {
            "id": len(rows),
            "network": network_name(path),
            "weight": weight,
            "desc": str(state.get("desc", "")),
            "workload_key": key,
            "target": str(state["target"]),
            "flop_ct": float(dag.flop_ct),
            "log": None,
            "layout_rewrite": int(state.get("layout_rewrite_option") or 0),
            "tensors": json.loads(tvm.ir.save_json(dag.tensors)),
            "upstream_key": upstream_key(dag),
        }
    if not rows:
        raise WmschedError(f"{path} holds no search tasks")
    return list(rows.values())


def network_name(path: Path) -> str:
    """What a file of tasks is called after.

    TenSet names them by the network's arguments, `((resnet_50,[(1,3,224,224)]),llvm).task.pkl`.
    """
    name = path.name.removesuffix(".pkl").removesuffix(".pickle").removesuffix(".task")
    if name.startswith("(("):
        name = name.removeprefix("((").rpartition("),")[0] or name
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip("_")[:100]


def _tasks(value: Any, depth: int = 0) -> Iterator[tuple[Task, int]]:
    """Search tasks in nested lists and tuples with their weights: a network's file holds (tasks, weights)."""
    if isinstance(value, Task):
        yield value, 1
    elif isinstance(value, (list, tuple)) and depth < 8:
        if len(value) == 2 and _are_weights(*value):
            yield from ((task, int(weight)) for task, weight in zip(*value, strict=True))
            return
        for part in value:
            yield from _tasks(part, depth + 1)


def _are_weights(tasks: Any, weights: Any) -> bool:
    return (
        isinstance(tasks, (list, tuple))
        and isinstance(weights, (list, tuple))
        and len(tasks) == len(weights)
        and all(isinstance(task, Task) for task in tasks)
        and all(isinstance(weight, (int, float)) and weight >= 0 for weight in weights)
    )
