"""Which tasks of a workloads file are collected, and how their logs are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from data_builder.base.replay import dag_of
from wmsched.ansor.compute_dag import PRE_TRANSFORMED, layout_rewrite
from wmsched.base.errors import UnknownName

Row = Mapping[str, Any]


def select(rows: Sequence[Row], spec: str) -> list[Row]:
    """Choose tasks of a workloads file.

    Parameters
    ----------
    rows : sequence of rows
    spec : str
        Comma-separated: `all`; an id or a range of ids such as `10-20`; `log` or `nolog` for rows that name a
        log or
        do not; or a part of the network's or the task's name.

    Raises
    ------
    UnknownName
        A part of `spec` chooses nothing.
    """
    chosen: dict[int, Row] = {}
    for term in filter(None, (part.strip() for part in spec.split(","))):
        found = {place: row for place, row in enumerate(rows) if _matches(place, row, term)}
        if not found:
            raise UnknownName(f"--tasks {term!r} chooses none of the {len(rows)} workloads; ids run from 0")
        chosen.update(found)
    return [{**chosen[place], "id": _id(place, chosen[place])} for place in sorted(chosen)]


def _id(place: int, row: Row) -> int:
    given = row.get("id")
    return given if type(given) is int and given >= 0 else place


def _matches(place: int, row: Row, term: str) -> bool:
    if term == "all":
        return True
    if term in ("log", "nolog"):
        return bool(row.get("log")) == (term == "log")
    first, dash, last = term.partition("-")
    if first.isdigit() and (last.isdigit() or not dash):
        return int(first) <= _id(place, row) <= int(last or first)
    return term in str(row.get("network", "")) or term in str(row.get("desc", ""))


def with_rewrite(row: Row) -> Row:
    """The row with a layout rewrite option, where the file says none: relay's on a CPU, where TVM can build
    that.

    Raises
    ------
    WmschedError
        TVM cannot load its tensors.
    """
    if row.get("layout_rewrite") is not None:
        return row
    return {**row, "layout_rewrite": layout_rewrite(PRE_TRANSFORMED, dag_of(row), "llvm")}


def log_name(row: Row) -> str:
    """File name of a task's log, such as `0003_resnet50.json`."""
    network = "".join(c if c.isalnum() or c in "-_." else "_" for c in str(row.get("network", "")))
    return f"{row['id']:04d}_{network or 'task'}.json"
