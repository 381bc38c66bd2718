"""Which schedules to measure next: random ones of the sketch policy, or those a cost model ranks first.

Needs AutoScheduler's TVM.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmsched.base.errors import LogError
from wmsched.schedules.database import schedule_key
from wmsched.schedules.log_file import skipped
from wmsched.schedules.steps import parse_record
from wmsched.toolchain.resolve import autoscheduler_tvm

ATTEMPTS = 4  # samples without a new schedule after which a task's space counts as used up
GUIDED_FROM = 4  # the stock model needs some measurements to be fitted to


def seed_of(text: str) -> int:
    """A search's seed that hangs on what it is for, and on nothing else."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=3).digest(), "big")


def measured_keys(log: Path, workload_key: str) -> list[bytes]:
    """Keys of the schedules in a log, in its order; lines that are no records count for nothing."""
    keys: list[bytes] = []
    if log.exists():
        with open(log, "rb") as stream:
            for line in stream:
                try:
                    record = parse_record(line)
                except LogError:
                    continue
                if record.workload_key == workload_key:
                    keys.append(schedule_key(record.steps))
    return keys


@dataclass(frozen=True)
class Guide:
    """What makes the model that guides.

    Parameters
    ----------
    make : callable (log) -> CostModel
        The model as it is after the records of a log.
    least : int
        Records that it needs before it has anything to say.
    """

    make: Callable[[Path], Any]
    least: int = 0


class Sampler:
    """New schedules of one task.

    Parameters
    ----------
    task : tvm.auto_scheduler.SearchTask
    log : Path
        The task's log; what is in it is not proposed again.
    cost_model : Guide, optional
        Makes the model that guides; None for random schedules only.
    """

    def __init__(self, task: Any, log: Path, *, cost_model: Guide | None = None) -> None:
        self._ansor = autoscheduler_tvm().auto_scheduler
        self.task = task
        self.log = log
        self.cost_model = cost_model
        self.measured = measured_keys(log, task.workload_key)

    def next(self, count: int, *, guided: bool, seed: int, before: int | None = None) -> list[Any]:
        """Up to `count` states, different from each other, less those that are measured already.

        Parameters
        ----------
        count : int
        guided : bool
            Those that the cost model ranks first, where there is one and it has something to go by.
        seed : int
            Of the search; with the same log the same states.
        before : int, optional
            Sample as if only so many records were in the log, and then leave out what the others measured: a
            batch that was begun is gone on with. By default all records count.

        Returns
        -------
        list of State
            Fewer than `count`, or none, where the space is used up.
        """
        earlier = self.measured[:before]
        known, since = set(earlier), set(self.measured[len(earlier) :])
        guided = guided and self.cost_model is not None and len(earlier) >= self.cost_model.least
        model = self._guide(len(earlier)) if guided else self._ansor.RandomModel()
        # The second is also how many schedules are drawn at a time until there is the first number of them.
        wanted = max(50, 2 * count)
        params = {
            "sample_init_min_population": wanted,
            "evolutionary_search_population": 512 if guided else wanted,
        }
        states: list[tuple[bytes, Any]] = []
        taken: set[bytes] = set()
        for attempt in range(ATTEMPTS):
            policy = self._ansor.SketchPolicy(
                self.task, model, params=dict(params), seed=_seed(seed, attempt), verbose=0
            )
            found = policy.sample_initial_population()
            if guided and found:
                found = policy.evolutionary_search(found, 2 * count + len(taken))
            for state in found:
                key = self._key(state)
                if key not in known and key not in taken:
                    taken.add(key)
                    states.append((key, state))
                    if len(states) == count:
                        return [state for key, state in states if key not in since]
        return [state for key, state in states if key not in since]

    def _guide(self, records: int) -> Any:
        """The model, fitted to the first `records` of the log."""
        assert self.cost_model is not None
        if records == len(self.measured):
            return self.cost_model.make(self.log)
        with tempfile.TemporaryDirectory(prefix="wmsched-log-") as folder:
            part = Path(folder) / self.log.name
            with open(self.log, "rb") as stream:
                lines = (line for line in stream if not skipped(line))
                part.write_bytes(b"".join(itertools.islice(lines, records)))
            return self.cost_model.make(part)

    def note(self, state: Any) -> None:
        """Remember that `state` has been measured."""
        self.measured.append(self._key(state))

    def _key(self, state: Any) -> bytes:
        blank = self._ansor.measure.MeasureResult([0.0], 0, "", 0.0, 0.0)
        line = self._ansor.measure_record.dump_record_to_string(
            self._ansor.MeasureInput(self.task, state), blank
        )
        return schedule_key(parse_record(str(line)).steps)  # TVM's String is no plain str


def _seed(seed: int, attempt: int) -> int:
    return 1 + seed_of(f"{seed}/{attempt}")  # TVM takes a seed of 0 for none


def guide(name: str) -> Guide | None:
    """What guides, by the name given on the command line.

    Parameters
    ----------
    name : str
        "none"; "xgb", AutoScheduler's own model fitted to the task's log; or a bundle's name or folder,
        which guides from the first schedule on and is corrected by the task's log.
    """
    if name == "none":
        return None
    if name == "xgb":

        def stock(log: Path) -> Any:
            model = autoscheduler_tvm().auto_scheduler.XGBModel(verbose_eval=0, seed=1)
            model.update_from_file(str(log))
            return model

        return Guide(stock, least=GUIDED_FROM)
    from wmsched.ansor.task_scheduler import WorldModelCostModel
    from wmsched.search.guarded_scoring import load_world_model

    bundle = load_world_model(name, online=True)

    def corrected(log: Path) -> Any:
        model = WorldModelCostModel(bundle, online=True)
        if log.exists():
            model.update_from_file(log)
        return model

    return Guide(corrected)
