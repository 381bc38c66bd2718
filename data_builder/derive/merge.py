"""`wmsched-data merge`: several datasets into one.

Records of one workload key that were measured on different machines stay in rank groups of their own;
records of the same key and machine become one group, without repeated measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from data_builder.base.disk_set import DiskSet
from data_builder.derive.writer import Derived, Row, identity, schedule, stored_records, stored_states
from wmsched.base.errors import DatasetError, LogError
from wmsched.learn.data.dataset import Dataset, group_id
from wmsched.schedules.any_steps import decode_steps
from wmsched.schedules.traces import is_trace_key
from wmsched.schedules.types import Stage, Workload

Part = tuple[int, str]  # number of the dataset, the workload's id in it


def merge(roots: Sequence[Path], out: Path, note: Callable[[str], None]) -> dict[str, Any]:
    """Merge finished datasets.

    Parameters
    ----------
    roots : sequence of Path
        The first one's labels (network, description, weight) win where they differ.
    out : Path
        The new dataset's directory.
    note : callable (text) -> None
        Told what had to be left out or worded anew.

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    DatasetError
        An input is no finished dataset, is named twice, or is not of the scheduler of the others; `out` holds
        something else.
    """
    datasets = [Dataset(root) for root in roots]
    if len({root.resolve() for root in roots}) < len(roots):
        raise DatasetError(f"a dataset is named twice among {', '.join(map(str, roots))}; name each once")
    _check_schedulers(datasets)
    groups: dict[str, list[Part]] = {}
    for number, dataset in enumerate(datasets):
        for workload_id in dataset.workload_ids:
            row = dataset.row(workload_id)
            name = group_id(row["workload_key"], row["target"], row["hardware"], row["threads"])
            groups.setdefault(name, []).append((number, workload_id))
    with Derived(out, {"command": "merge", "inputs": [str(root) for root in roots]}) as derived:
        names = _enter_sources(datasets, derived)
        for name in sorted(groups):
            _Group(datasets, groups[name], names, note).write(name, derived)
        failed = sum(dataset.manifest["totals"].get("replay_failed", 0) for dataset in datasets)
        return derived.finish({"replay_failed": failed})


def _check_schedulers(datasets: Sequence[Dataset]) -> None:
    """Refuse AutoScheduler's records beside MetaSchedule's: of other columns, so no model learns of both."""
    found: dict[bool, str] = {}
    for dataset in datasets:
        for workload_id in dataset.workload_ids:
            traces = is_trace_key(dataset.row(workload_id)["workload_key"])
            found.setdefault(traces, f"{dataset.root}, workload {workload_id}")
    if len(found) > 1:
        raise DatasetError(
            f"{found[True]} is of MetaSchedule and {found[False]} of AutoScheduler; "
            "merge and train each scheduler's datasets apart"
        )


def _enter_sources(datasets: Sequence[Dataset], derived: Derived) -> list[dict[str, str]]:
    """Names of each dataset's logs in the merged one: a path that two of them use gets a number."""
    names: list[dict[str, str]] = []
    for dataset in datasets:
        given: dict[str, str] = {}
        for entry in dataset.manifest["sources"]:
            path = name = entry["path"]
            number = 1
            while name in derived.sources:
                number += 1
                name = f"{path}#{number}"
            given[path] = name
            derived.add_source(name, entry)
        names.append(given)
        problems = dataset.root / "problems.txt"
        if problems.exists():
            with open(problems, encoding="utf-8") as lines:
                for line in lines:
                    derived.problem(line.rstrip("\n"))
    return names


class _Group:
    """One rank group of the merged dataset."""

    def __init__(
        self,
        datasets: Sequence[Dataset],
        parts: Sequence[Part],
        names: Sequence[dict[str, str]],
        note: Callable[[str], None],
    ) -> None:
        self.parts = [(datasets[number], workload_id, names[number]) for number, workload_id in parts]
        self.note = note
        rows = [dict(dataset.row(workload_id)) for dataset, workload_id, _ in self.parts]
        # The one that knows most about the program speaks for all.
        self.base = max(rows, key=lambda row: (bool(row["s0"]), bool(row["stages"])))
        named = dict.fromkeys(name for row in rows for name in (row["network"], *row["networks"]) if name)
        self.base["networks"] = list(named) if len(named) > 1 else []
        for label in ("network", "desc"):
            self.base[label] = next((row[label] for row in rows if row[label]), "")
        self.stages: tuple[Stage, ...] = Workload.stages_from_json(self.base["stages"])
        self.rows = rows

    def write(self, name: str, derived: Derived) -> None:
        with DiskSet(folder=derived.out) as records, DiskSet(folder=derived.out) as states:
            workload = {**self.base, "workload_id": name}
            derived.group(workload, self._records(derived, records), self._states(states))

    def _other_start(self, row: Row) -> bool:
        """Whether a part's states begin in another initial program than the group's."""
        return bool(row["s0"]) and row["s0"] != self.base["s0"]

    def _lent(self) -> dict[bytes, list[str]]:
        """Replayed states by schedule, where one record of it has them and another has not.

        They follow from the steps alone, so a record that stays may have those of one that is left out.
        """
        if len(self.parts) < 2:
            return {}
        bare = {schedule(record) for record, states in self._replayed() if not states}
        found: dict[bytes, list[str]] = {}
        for record, states in self._replayed():
            if states and (name := schedule(record)) in bare:
                found.setdefault(name, states)
        return found

    def _replayed(self) -> Iterator[tuple[Row, list[str]]]:
        """Each record of each part, and its states where they begin in the group's initial program."""
        for (dataset, workload_id, _), row in zip(self.parts, self.rows, strict=True):
            for record in stored_records(dataset, workload_id):
                yield record, [] if self._other_start(row) else record["states"]

    def _records(self, derived: Derived, seen: DiskSet) -> Iterator[Row]:
        lent = self._lent()
        for (dataset, workload_id, names), row in zip(self.parts, self.rows, strict=True):
            reword = row["stages"] != self.base["stages"]
            stateless = self._other_start(row)
            if stateless:
                self.note(
                    f"{dataset.root}, workload {workload_id}: its initial program is not that of the others "
                    "(another TVM wrote it, say); its records are kept without states"
                )
            for record in stored_records(dataset, workload_id):
                record["source"] = names[record["source"]]
                if not seen.add(identity(record)):
                    derived.drop(record, "the same measurement as an earlier line; left out")
                    continue
                if reword:
                    try:
                        actions = decode_steps(orjson.loads(record["steps"]), self.stages)
                    except LogError as error:  # known now not to fit the program; it counts as excluded
                        derived.problem(f"{record['source']}:{record['line']}: {error.reason}; left out")
                        continue
                    record["action_texts"] = [action.text for action in actions]
                if stateless:
                    record["states"] = []
                record["states"] = record["states"] or lent.get(schedule(record), [])
                yield record

    def _states(self, seen: DiskSet) -> Iterator[Row]:
        for (dataset, workload_id, _), row in zip(self.parts, self.rows, strict=True):
            if self._other_start(row):
                continue
            for state in stored_states(dataset, workload_id):
                if seen.add(bytes.fromhex(state["hash"][:32])):
                    yield state
