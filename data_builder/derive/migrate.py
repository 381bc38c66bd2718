"""`wmsched-data migrate`: a dataset of an earlier format rewritten in today's.

Rank groups get ids that name the machine, records the columns `workload_id` and `disturbed`, the manifest
checksums. Texts of actions are worded anew, since what wrote them may have worded them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from data_builder.derive.writer import Derived, Row, stored_records, stored_states
from wmsched.base.errors import DatasetError, LogError
from wmsched.learn.data.dataset import FORMAT_VERSION, Dataset, group_id
from wmsched.schedules.any_steps import decode_steps
from wmsched.schedules.types import Stage, Workload


def migrate(root: Path, out: Path) -> dict[str, Any]:
    """Write `root` in today's format to `out`; the old directory is left as it is.

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    DatasetError
        `root` is in today's format already, is no dataset, or `out` holds something else.
    """
    dataset = Dataset(root)
    if dataset.version == FORMAT_VERSION:
        raise DatasetError(f"{root} is in format {FORMAT_VERSION} already; there is nothing to migrate")
    made = {"command": "migrate", "inputs": [str(root)], "from": dataset.version}
    with Derived(out, made) as derived:
        for entry in dataset.manifest["sources"]:
            derived.add_source(entry["path"], entry)
        problems = root / "problems.txt"
        if problems.exists():
            with open(problems, encoding="utf-8") as lines:
                for line in lines:
                    derived.problem(line.rstrip("\n"))
        for workload_id in dataset.workload_ids:
            row: Row = dict(dataset.row(workload_id))
            row["workload_id"] = group_id(row["workload_key"], row["target"], row["hardware"], row["threads"])
            stages = Workload.stages_from_json(row["stages"])
            records = _worded(stored_records(dataset, workload_id), stages, derived)
            derived.group(row, records, stored_states(dataset, workload_id))
        totals = dataset.manifest["totals"]
        return derived.finish({name: totals[name] for name in ("replay_failed",) if name in totals})


def _worded(records: Iterator[Row], stages: tuple[Stage, ...], derived: Derived) -> Iterator[Row]:
    for record in records:
        try:
            actions = decode_steps(orjson.loads(record["steps"]), stages)
        except LogError as error:  # an older codec took it; it counts as excluded
            derived.problem(f"{record['source']}:{record['line']}: {error.reason}; left out")
            continue
        yield {**record, "action_texts": [action.text for action in actions]}
