"""The benchmark's tasks, shipped as data: seven models' subgraphs with their compute graphs (TVM's JSON).

Reading them needs no TVM. Written by `python -m benchmarks.models.export`. A row has the fields of an open
workload file (`workload_key`, `target`, `weight`, `desc`, `flop_ct`, `layout_rewrite`, `tensors`, ...) and
besides: `model` and `index` (so `name` is "resnet50/6"), `ops` (the fused operators), `type` (the
representative it is, such as "conv2d-relu", or ""), `upstream_key` (the key of the same layer where
TVM names a dense layer's axes, or null: a log that says it is of this task too) and `tensorir_key` (the key
of the same computation in MetaSchedule's datasets, or null: of the representatives only). The last is written
by `python -m benchmarks.tune.meta.keys`, with MetaSchedule's TVM.
"""

from __future__ import annotations

import difflib
import functools
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wmsched.base.errors import UnknownName

__all__ = ["find", "keys", "models", "representatives", "rows", "types"]

Row = dict[str, Any]

PATH = Path(__file__).with_name("benchmark.json.gz")
TENSORIR = Path(__file__).with_name("tensorir.json")  # the representatives' keys, by type


@functools.cache
def _text() -> bytes:
    return gzip.decompress(PATH.read_bytes())


@functools.cache
def _load() -> tuple[Row, ...]:
    return tuple(rows())


@functools.cache
def _tensorir() -> dict[str, str]:
    return json.loads(TENSORIR.read_bytes())


def rows() -> list[Row]:
    """Every task of every model, by model and then heaviest first; the caller may change them."""
    found = json.loads(_text())  # parsing is quicker than a deep copy
    for row in found:
        row["tensorir_key"] = _tensorir().get(row["type"])
    return found


def keys(row: Mapping[str, Any]) -> list[str]:
    """The workload keys that mean a row's task, in a row of any workload file."""
    return [key for key in (row["workload_key"], row.get("upstream_key"), row.get("tensorir_key")) if key]


def models() -> list[str]:
    """The models' names, in the paper's order."""
    return list(dict.fromkeys(row["model"] for row in _load()))


def types() -> list[str]:
    """The names of the 22 representative types."""
    return [row["type"] for row in _load() if row["type"]]


def representatives() -> list[Row]:
    """One task for each type of subgraph (paper, table 2), in the order of `rows`."""
    return [row for row in rows() if row["type"]]


def find(name: str) -> list[Row]:
    """The tasks that `name` stands for.

    A task ("resnet50/6"), a type ("conv2d-relu"), a model ("gpt2"), "representatives" or "all".

    Raises
    ------
    UnknownName
        If nothing is called that; the message lists the nearest names.
    """
    wanted = name.strip().lower()
    if wanted == "all":
        return rows()
    if wanted == "representatives":
        return representatives()
    found = [row for row in rows() if wanted in (row["name"], row["type"], row["model"])]
    if not found:
        known = [*models(), *types(), *(row["name"] for row in _load())]
        near = difflib.get_close_matches(wanted, known, n=4, cutoff=0.4)
        advice = f"did you mean {', '.join(near)}?" if near else f"the models are {', '.join(models())}"
        raise UnknownName(f"no benchmark task, type or model is called {name!r}; {advice}")
    return found
