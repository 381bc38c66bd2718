"""Prefixes of a schedule as TensorIR texts. Needs AutoScheduler's TVM.

Every prefix of a record's steps is itself a loadable record: cut the list, load it, apply it to the compute
DAG.
Candidates of one workload share most of their beginnings, so each distinct prefix is replayed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from data_builder.seen import Seen
from wmsched.codecs.ansor import dump_record
from wmsched.dataset import state_hash
from wmsched.errors import WmschedError
from wmsched.resolve import autoscheduler_tvm
from wmsched.types import Record

# TVMError is a RuntimeError, MetaSchedule's ScheduleError too; the FFI also raises the built-in kinds.
TVM_REFUSES = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError)


MAX_PREFIXES = 20_000  # some 5 MB, and the prefixes of some 1,500 schedules


class ReplayError(WmschedError):
    """TVM does not accept a prefix of the steps. `step` counts the steps of that prefix."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"step {step} cannot be replayed: {reason}")
        self.step = step
        self.reason = reason


class Replay:
    """Replays schedules of one workload.

    Parameters
    ----------
    dag : tvm.auto_scheduler.ComputeDAG
        The workload's compute DAG.
    on_text : callable (hash, text) -> None
        Called once for each distinct program text, in the order in which they are first met.
    told : Seen, optional
        Remembers which texts have been told.

    Notes
    -----
    Holds 16 bytes a distinct prefix and one hash a distinct text, not the texts; beyond `MAX_PREFIXES` it
    starts anew, which costs replaying some prefixes again, and the texts' hashes move to a file (see
    `seen.Seen`).
    """

    def __init__(self, dag: Any, *, on_text: Callable[[str, str], None], told: Seen | None = None) -> None:
        self.dag = dag
        self.on_text = on_text
        self._by_prefix: dict[bytes, str] = {}
        self._told = told or Seen()

    def __call__(self, record: Record) -> tuple[str, ...]:
        """Hashes of s0 .. sK for the K steps of `record`.

        Raises
        ------
        ReplayError
            TVM refuses a prefix. Texts met before it have been told to `on_text` all the same.
        """
        hashes = []
        digest = b""
        for length in range(len(record.steps) + 1):
            if length:
                step = orjson.dumps(record.steps[length - 1])
                digest = hashlib.blake2b(digest + step, digest_size=16).digest()
            known = self._by_prefix.get(digest)
            if known is None:
                known = self._tell(prefix_text(self.dag, record, length))
                if len(self._by_prefix) >= MAX_PREFIXES:
                    self._by_prefix.clear()
                self._by_prefix[digest] = known
            hashes.append(known)
        return tuple(hashes)

    def _tell(self, text: str) -> str:
        name = state_hash(text)
        if self._told.add(bytes.fromhex(name[:32])):
            self.on_text(name, text)
        return name


def dag_of(row: Mapping[str, Any]) -> Any:
    """The compute DAG of a row of the workloads file.

    Raises
    ------
    WmschedError
        The row has no tensors, or TVM cannot load them.
    """
    autoscheduler_tvm()
    from wmsched.backends.workload import dag_from_row  # only now that the right TVM is imported

    try:
        return dag_from_row(dict(row))
    except TVM_REFUSES as error:
        raise WmschedError(
            f"the tensors of its workloads row make no compute DAG: {last_line(error)}"
        ) from error


def prefix_text(dag: Any, record: Record, length: int) -> str:
    """TensorIR after the first `length` steps of `record`.

    Raises
    ------
    ReplayError
        TVM refuses them.
    """
    from wmsched.backends.workload import state_text

    load = autoscheduler_tvm().auto_scheduler.measure_record.load_record_from_string
    line = dump_record(replace(record, steps=record.steps[:length]))
    try:
        loaded, _ = load(line)
        return state_text(dag, dag.infer_bound_from_state(loaded.state))
    except TVM_REFUSES as error:
        raise ReplayError(length, last_line(error)) from error


def last_line(error: BaseException) -> str:
    """TVM's messages are stack traces; what went wrong stands at the end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
