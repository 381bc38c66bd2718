"""Plan of the runs, in order, without those that a results file already has."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DEFAULT_ROUND = 64  # TVM's own num_measures_per_round

Line = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One tuning run: everything that decides it besides the machine."""

    task: str
    method: str
    budget: int
    round_size: int
    seed: int

    @classmethod
    def of(cls, line: Line) -> Run:
        """The run of a result line."""
        return cls(*(line[name] for name in ("task", "method", "budget", "round_size", "seed")))

    @property
    def slug(self) -> str:
        """A file name for its log."""
        parts = (self.task, self.method, f"b{self.budget}", f"r{self.round_size}", f"s{self.seed}")
        return "__".join("".join(c if c.isalnum() or c in "-_." else "-" for c in part) for part in parts)

    def fields(self) -> Line:
        """As the fields of a result line."""
        return asdict(self)


def plan(
    tasks: Sequence[str],
    methods: Sequence[str],
    budgets: Sequence[int],
    seeds: Sequence[int],
    *,
    round_size: int = DEFAULT_ROUND,
) -> list[Run]:
    """All runs, task by task, each run's rounds no larger than its budget.

    Within a task the methods take turns (A B A B), so that a drift of the machine's speed falls on all alike.
    """
    for name, values in (("tasks", tasks), ("methods", methods), ("budgets", budgets), ("seeds", seeds)):
        if not values:
            raise ValueError(f"no {name}: give at least one")
    if min(budgets) < 1 or round_size < 1:
        raise ValueError(f"budgets {list(budgets)} and the round size {round_size} must be at least 1")
    return [
        Run(task, method, budget, min(budget, round_size), seed)
        for task in dict.fromkeys(tasks)
        for budget in dict.fromkeys(budgets)
        for seed in dict.fromkeys(seeds)
        for method in dict.fromkeys(methods)
    ]


# The kinds of result lines, and the fields without which one means nothing. Older lines of
# `benchmarks.offline.offline` have no kind.
REQUIRED: dict[str, tuple[str, ...]] = {
    "run": ("task", "method", "budget", "round_size", "seed", "status"),
    "remeasure": ("task", "status"),
    "pytorch": ("model", "executor", "threads", "status"),
    "whole": ("model", "method", "budget", "round_size", "seed", "status"),
    "subgraph": ("task", "executor", "tf32", "median", "status"),
    "pool": ("task", "type", "target", "records", "seconds"),
    "dense_layout": ("layer", "layout", "method", "trials", "seconds"),
    "timing_noise": ("task", "calls", "seconds"),
    "lowering": ("task", "method", "plain", "lowered", "gain"),
    "neighbours": ("task", "method", "own", "measured", "gain"),
    "threads_ranking": ("task", "threads", "told", "alone"),
    "tuned_model": ("model", "seconds", "threads", "status"),
    "ranking": ("method", "by", "folds", "group"),
    "runtime": ("model", "runtime", "median", "p99"),
    "construct": ("model", "seconds", "peak_bytes"),
    "first_choice": ("task", "variants", "pool", "seconds", "rounds"),
    "busy": ("model", "runtime", "busy", "median", "p99"),
    "served": ("model", "runtime", "way", "processes", "median", "p99"),
    "call_overhead": ("model", "load", "bare", "ratio"),
    "disturbed_search": ("model", "seed", "programs", "trial_shares", "time_shares"),
    "disturbed": ("model", "seed", "programs", "alone", "busy", "ratio"),
    "shapes-run": ("case", "lengths", "seconds"),
    "shapes-latency": ("case", "length", "several", "alone"),
    "decode": ("model", "runtime", "cache", "median", "turns", "tokens"),
    "graph_ranking": ("graph", "family", "method", "seed", "tau", "best_of_1", "best_of_5"),
    "graph_repeat": ("graph", "configurations", "tau", "best_of_5", "rules_over_best"),
    "graph_model": ("model", "turns", "compile_seconds"),
    "rpc_fleet": ("devices", "round", "candidates", "failed", "seconds"),
    "start": ("what", "seconds", "turns"),
    "candidates": ("scheduler", "round", "now", "before", "ratio"),
    "golden": ("bundle", "margins", "equal"),
    "suite": ("commit", "seconds", "rc"),
    "peak": ("gflops", "bandwidth", "threads", "status"),
    "offline": (
        "method",
        "draw",
        "fold",
        "network",
        "weight",
        "workload_key",
        "programs",
        "best",
        "top1",
        "ran1",
    ),
}


class Results:
    """A results file: JSON lines, appended and flushed to disk one by one.

    A last line cut off by a kill is dropped when the file is opened for writing; a bad line anywhere else
    is an error, since it means that the file is not what it seems.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                kept = content[: content.rfind(b"\n") + 1]
                with path.open("r+b") as file:
                    file.truncate(len(kept))
        self.lines = list(read(path)) if path.exists() else []

    def append(self, line: Line) -> None:
        """Add one line; on disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)

    def done(self, fingerprints: dict[str, str | None] | None = None) -> dict[Run, Line]:
        """The latest successful line of each run. A failed run is not done: it is tried again.

        `fingerprints` gives the model that each method would use now (None: no model); a line made with
        another one is of another method that happens to have the same name, and does not count.
        """
        found: dict[Run, Line] = {}
        for line in self.lines:
            if line["kind"] != "run" or line["status"] != "ok":
                continue
            wanted = (fingerprints or {}).get(line["method"], line.get("fingerprint"))
            if line.get("fingerprint") == wanted:
                found[Run.of(line)] = line
        return found

    def remeasured(self) -> dict[Run, Line]:
        """The latest second measurement of each run: its entry, with "record", "seconds" and "median"."""
        found: dict[Run, Line] = {}
        for line in self.lines:
            if line["kind"] == "remeasure" and line["status"] == "ok":
                for entry in line["entries"]:
                    found[Run.of({"task": line["task"], **entry})] = entry
        return found


def read(path: Path) -> Iterator[Line]:
    """The lines of a results file, gzipped or not. ValueError, with its place, for one that is no result."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as file
    ):
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                kind = line.setdefault("kind", "offline") if "fold" in line else line["kind"]
                required = REQUIRED[kind]
                missing = [name for name in required if name not in line]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}:{number}: not a benchmark result ({error!r}); remove the line or the file"
                ) from error
            if missing:
                raise ValueError(f"{path}:{number}: the result lacks {', '.join(missing)}; remove the line")
            yield line


def read_all(paths: Iterable[Path]) -> list[Line]:
    """The lines of several results files, in order."""
    return [line for path in paths for line in read(path)]
