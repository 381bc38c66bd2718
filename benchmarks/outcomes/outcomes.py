"""Outcomes of result lines by run: the reported latency, and the ratios between methods."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.methods import META, kin
from benchmarks.outcomes import paper
from benchmarks.plan import DEFAULT_ROUND, Line, Run

RANDOM = "random"
TIMED = ("pytorch", "whole", "peak")  # other lines that hold times


@dataclass(frozen=True, slots=True)
class Setting:
    """A budget and its round size, what one column group of the tables is about."""

    budget: int
    round_size: int

    @property
    def usual(self) -> bool:
        return self.round_size == min(self.budget, DEFAULT_ROUND)

    def __str__(self) -> str:
        return f"{self.budget} trials" + ("" if self.usual else f" in rounds of {self.round_size}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tables need of one run; seconds of the best schedule, `again` if measured a second time.

    `record` is the schedule that the seconds are of: the line's best, or what stands in for one that computes
    something else.
    """

    run: Run
    seconds: float
    spread: float
    again: bool
    line: Line
    record: str

    @property
    def instead(self) -> bool:
        """Whether another schedule stands in for the line's best, which computes something else."""
        return self.record != self.line["best_record"]

    @property
    def setting(self) -> Setting:
        return Setting(self.run.budget, self.run.round_size)

    @property
    def kept_workers(self) -> bool:
        """Whether builder and runner processes stayed for the run: its times are then not stock TVM's."""
        return bool(self.line.get("kept_workers"))


class Outcomes:
    """The outcomes in some result lines, by task, method and setting.

    Parameters
    ----------
    lines : sequence of dict
        Result lines, in the order in which they were written: a later line of the same run replaces an
        earlier one.
    ours : sequence of str
        The methods whose speedups are reported; by default those called wmsched... or meta-wmsched...,
        the ablations apart; without any, all but `random`, or all but the first.

    Attributes
    ----------
    ablations : dict
        Methods such as `wmsched@no-phi`, each with its name among the paper's ablations.
    others : dict
        Lines of other kinds ("pytorch", "offline") by kind.
    processor : str
        The kind that all times are of; "" if no line names it.

    Raises
    ------
    ValueError
        If the times are of more than one kind of processor, or of programs on several numbers of threads: no
        ratio of theirs means anything.
    """

    def __init__(self, lines: Sequence[Line], *, ours: Sequence[str] = ()) -> None:
        runs: dict[Run, Line] = {}
        again: dict[Run, dict[str, Any]] = {}
        wrong: dict[Run, str] = {}
        self.failures: dict[Run, Line] = {}
        self.broken: list[str] = []
        self.others: dict[str, list[Line]] = {}
        for line in lines:
            if line["kind"] not in ("run", "remeasure"):
                self.others.setdefault(line["kind"], []).append(line)
            elif line["kind"] == "remeasure":
                for entry in line.get("entries", []):
                    run = Run.of({"task": line["task"], **entry})
                    if "median" in entry:
                        again[run] = entry
                    else:
                        again.pop(run, None)
                        if WRONG in entry["error"] or "instead_of" in entry:
                            wrong[run] = entry.get("instead_of", entry["record"])
                        self.broken.append(f"{run.task}, {run.method}, second measurement: {entry['error']}")
            elif line["status"] == "ok":
                runs[Run.of(line)] = line
                self.failures.pop(Run.of(line), None)
            elif Run.of(line) not in runs:
                self.failures[Run.of(line)] = line
        self.processor = _processor(
            [*runs.values(), *(line for kind in TIMED for line in self.others.get(kind, []))]
        )
        _one_number_of_threads(runs.values())
        self.all: dict[Run, Outcome] = {}
        for run, line in runs.items():
            if wrong.get(run) == line["best_record"] and run not in again:
                # and so did what was next in its log, if there was any
                self.failures[run] = line | {"error": f"of its best schedule: {WRONG}"}
                continue
            entry = again.get(run)
            if entry is not None and line["best_record"] in (entry["record"], entry.get("instead_of")):
                self.all[run] = Outcome(run, entry["median"], entry["spread"], True, line, entry["record"])
            else:
                self.all[run] = Outcome(run, line["best_seconds"], 0.0, False, line, line["best_record"])
        self._cells: dict[tuple[str, str, Setting], dict[int, Outcome]] = {}
        self._known: dict[tuple[str, str], float] = {}  # by task and what its method is set against
        for run, outcome in self.all.items():
            self._cells.setdefault((run.task, run.method, outcome.setting), {})[run.seed] = outcome
            search = (run.task, kin(run.method))
            self._known[search] = min(outcome.seconds, self._known.get(search, math.inf))
        self.tasks = list(dict.fromkeys(run.task for run in self.all))
        self.methods = list(dict.fromkeys(run.method for run in self.all))
        self.settings = sorted(
            {o.setting for o in self.all.values()}, key=lambda s: (s.budget, -s.round_size)
        )
        self.ablations = {m: name for m in self.methods if m not in ours and (name := ablation(m))}
        usual = [m for m in self.methods if m not in self.ablations]
        self.ours = list(ours) or [m for m in usual if m.removeprefix(META).startswith("wmsched")]
        if not self.ours and usual:
            against = RANDOM if RANDOM in usual else usual[0]
            self.ours = [m for m in usual if m != against]
        self.baselines = [m for m in usual if m not in self.ours]
        self.titles = {o.run.task: o.line.get("type") or "" for o in self.all.values()}

    def of(self, task: str, method: str, setting: Setting) -> dict[int, Outcome]:
        """The outcomes of a cell by seed."""
        return self._cells.get((task, method, setting), {})

    def best_known(self, task: str, method: str) -> float:
        """The seconds of a task's fastest outcome of all methods that `method` may be set against."""
        return self._known[task, kin(method)]

    @property
    def representatives(self) -> list[str]:
        """The tasks that stand for a type; all tasks where none does (recorded logs of other networks)."""
        return [task for task in self.tasks if self.titles[task]] or self.tasks

    def pairs(self) -> list[tuple[str, str]]:
        """(ours, baseline): what is set against what. Searches of different kinds are not, nor is a whole
        script against a search in which methods differ by the cost model alone."""
        return [(ours, base) for ours in self.ours for base in self.baselines if kin(ours) == kin(base)]

    def both(
        self, ours: str, ours_setting: Setting, baseline: str, baseline_setting: Setting
    ) -> Iterator[tuple[str, Outcome, Outcome]]:
        """Task, our run and the baseline's, of each task and seed that both have."""
        for task in self.tasks:
            mine, theirs = self.of(task, ours, ours_setting), self.of(task, baseline, baseline_setting)
            for seed in sorted(mine.keys() & theirs.keys()):
                yield task, mine[seed], theirs[seed]

    def ratios(
        self, baseline: str, baseline_setting: Setting, ours: str, ours_setting: Setting
    ) -> dict[str, list[float]]:
        """baseline seconds / our seconds for each representative, one for each seed that both have."""
        found: dict[str, list[float]] = {}
        representatives = set(self.representatives)
        for task, mine, theirs in self.both(ours, ours_setting, baseline, baseline_setting):
            if task in representatives:
                found.setdefault(task, []).append(theirs.seconds / mine.seconds)
        return found


def middle(cell: dict[int, Outcome]) -> float:
    """The median over seeds of a cell's seconds."""
    return statistics.median(o.seconds for o in cell.values())


def ablation(method: str) -> str:
    """Which of the paper's ablations a method such as `wmsched@work/bundles/x86-no-phi` is; "" for none."""
    _, _, bundle = method.partition("@")
    names = [row["name"] for row in paper.figures()["ablations"]["rows"]]
    return next((name for name in names if bundle and bundle.rstrip("/").endswith(name)), "")


def _timed_on(line: Line) -> str:
    if isinstance(line.get("device"), dict) and line["device"].get("name"):
        return str(line["device"]["name"])  # a GPU, where programs were timed after the search elsewhere
    threads = line.get("emulated_threads")
    return f"{line['cpu']}, as with {threads} cores" if threads else str(line["cpu"])


def _one_number_of_threads(runs: Iterable[Line]) -> None:
    """ValueError where runs on a processor had programs on several numbers of threads."""
    found = {
        line["threads"]
        for line in runs
        if isinstance(line.get("threads"), int) and not line.get("emulated_threads") and not on_gpu(line)
    }
    if len(found) > 1:
        raise ValueError(
            f"these runs are on {' and '.join(map(str, sorted(found)))} threads: give the files of each to a "
            "report of its own"
        )


def on_gpu(line: Line) -> bool:
    """Whether a run's programs were timed on a GPU, where threads and sets of buffers are none."""
    return isinstance(line.get("device"), dict) or "cuda" in str(line.get("target", ""))


def _processor(lines: Sequence[Line]) -> str:
    found = {_timed_on(line): None for line in lines if line.get("cpu")}
    if len(found) > 1:
        raise ValueError(
            f"these lines are of {len(found)} kinds of processors, {' and '.join(found)}: "
            "give the files of each to a report of its own"
        )
    return next(iter(found), "")


WRONG = "it computes something else"  # how the second measurement says so
