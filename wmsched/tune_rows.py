"""Which tasks ``wmsched tune NAME`` means: the benchmark's, or a workload file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wmsched import zoo
from wmsched.base.errors import UnknownName
from wmsched.schedules.workload_file import load_rows


def rows_of(name: str, workloads: Path | None = None) -> list[dict[str, Any]]:
    """The rows of the tasks called `name`, each task once, with the sum of its weights.

    Parameters
    ----------
    name : str
        A task, type or model of `wmsched.zoo`; with `workloads`, an id, description or network of that file,
        or "all".
    workloads : Path, optional
        An open JSON workload file.

    Raises
    ------
    UnknownName
        There are none.
    """
    if workloads is None:
        rows = zoo.find(name)
    else:
        every = load_rows(workloads)
        rows = [
            row
            for row in every
            if name in ("all", str(row.get("id")), row.get("desc"), row.get("network"), row.get("name"))
            or name in row.get("networks", ())
        ]
        rows = [row | {"weight": _weight(row, name)} for row in rows]
        if not rows:
            raise UnknownName(
                f"no row of {workloads} has the id, desc, network or name {name!r}; "
                f"its networks are {', '.join(sorted(_networks(every)))}"
            )
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:  # the same task under two names is tuned once, for both
        if row["workload_key"] in merged:
            merged[row["workload_key"]]["weight"] += row.get("weight") or 1
        else:
            merged[row["workload_key"]] = {**row, "weight": row.get("weight") or 1}
    return list(merged.values())


def _weight(row: dict[str, Any], name: str) -> Any:
    """How often the task occurs in what is called so: in one of its networks, or in all."""
    networks = row.get("networks") or {}
    return networks.get(name) or sum(networks.values()) or row.get("weight")


def _networks(rows: list[dict[str, Any]]) -> set[str]:
    return {str(name) for row in rows for name in (row.get("network"), *row.get("networks", ()))}


def label(row: dict[str, Any]) -> str:
    """What the task of a row is called."""
    return str(
        row.get("name") or f"{row.get('network', '')}/{row.get('id', '')} {row.get('desc', '')}".strip(" /")
    )
