"""Command ``wmsched score``: rank the programs of a log with a bundle; compare with measured times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from wmsched import zoo
from wmsched.base.errors import LogError
from wmsched.learn.evaluate import metrics
from wmsched.schedules.log_file import skipped
from wmsched.schedules.steps import check_sizes, parse_record
from wmsched.schedules.types import Record, Workload
from wmsched.schedules.workload_file import by_key, load_rows
from wmsched.toolchain.resolve import autoscheduler_tvm


@dataclass(frozen=True, kw_only=True)
class TaskScores:
    """One task's programs of a log, ranked.

    Parameters
    ----------
    name : str
        From the zoo or the workload file; otherwise the beginning of the workload key.
    known : bool
        Whether the compute DAG is known; otherwise the model reads actions and hardware only.
    lines : list of int
        Line numbers in the log, as many as scores.
    scores : float32 [N]
    seconds : float64 [N]
        NaN if a program failed or was not measured.
    """

    name: str
    known: bool
    lines: list[int]
    scores: NDArray[np.float32]
    seconds: NDArray[np.float64]

    def quality(self) -> dict[str, float]:
        """Return top-1, top-5, pairwise accuracy and Kendall's tau; empty below two measured programs."""
        if np.isfinite(self.seconds).sum() < 2:
            return {}
        return {
            "top1": metrics.top_k_score(self.scores, self.seconds, 1),
            "top5": metrics.top_k_score(self.scores, self.seconds, 5),
            "pairwise": metrics.pairwise_accuracy(self.scores, self.seconds),
            "tau": metrics.kendall_tau(self.scores, self.seconds),
        }


def score_log(
    log: Path, model: Any, *, workloads: Path | None = None, bad: list[str] | None = None
) -> Iterator[TaskScores]:
    """Score every record of `log` with `model` (a WorldModel), one task at a time.

    Parameters
    ----------
    workloads : Path, optional
        JSON workload file with the compute DAGs of tasks outside the zoo.
    bad : list of str, optional
        Receives ``file:line: reason`` for each line that is no record.

    Raises
    ------
    LogError
        If the log cannot be read at all or holds no record.
    """
    groups: dict[tuple[str, str, tuple[int, ...]], list[tuple[int, Record]]] = {}
    try:
        with log.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if skipped(line):
                    continue
                try:
                    record = parse_record(line, place=f"{log}:{number}")
                    check_sizes(record.steps, place=f"{log}:{number}")
                except LogError as error:
                    if bad is not None:
                        bad.append(str(error))
                    continue
                machine = (record.workload_key, record.target, record.hardware)  # times compare within one
                groups.setdefault(machine, []).append((number, record))
    except OSError as error:
        raise LogError(f"cannot be read: {error.strerror}", place=str(log)) from error
    if not groups:
        raise LogError("no record in it", place=str(log))
    rows = by_key(zoo.rows())
    if workloads is not None:
        rows.update(by_key(load_rows(workloads)))
    for (key, target, _), members in groups.items():
        records = [record for _, record in members]
        workload, text, name = _workload(key, target, records[0], rows.get(key))
        scores = model.task(workload, text).score([record.steps for record in records])
        yield TaskScores(
            name=name,
            known=bool(workload.stages),
            lines=[number for number, _ in members],
            scores=np.asarray(scores, dtype=np.float32),
            seconds=np.array([record.measurement.seconds for record in records]),
        )


def write_scores(tasks: list[TaskScores], file: IO[bytes]) -> None:
    """Write one JSON line a program: line in the log, task, score, and rank in the task from 1."""
    for task in tasks:
        ranks = np.empty(len(task.lines), dtype=int)
        ranks[np.argsort(-task.scores, kind="stable")] = np.arange(1, len(task.lines) + 1)
        for line, score, rank in zip(task.lines, task.scores, ranks):
            row = {"line": line, "task": task.name, "score": float(score), "rank": int(rank)}
            file.write(orjson.dumps(row) + b"\n")


def _workload(key: str, target: str, record: Record, row: dict[str, Any] | None) -> tuple[Workload, str, str]:
    """Return the workload, its unscheduled program's text, and its name; the first two need the DAG."""
    if row is None:
        return Workload(key=key, target=target, hardware=record.hardware), "", key[:40]
    autoscheduler_tvm()
    from wmsched.ansor.compute_dag import dag_from_row, initial_text, workload_from_dag

    dag = dag_from_row(row)
    name = str(row.get("name") or f"{row.get('network', '')} {row.get('desc', '')}".strip())
    # The record's hardware, not this machine's: the log may come from another, or from a GPU.
    workload = workload_from_dag(
        dag, key=key, target=target, hardware=record.hardware, layout_rewrite=record.layout_rewrite
    )
    return workload, initial_text(dag), name
