"""The values that every room shares: workloads, actions, measurements, trajectories. No TVM, no torch."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

#: TVM's MeasureErrorNo by number, in the field's short names.
ERROR_KINDS = {
    0: "ok",
    1: "instantiation",
    2: "compile_host",
    3: "compile_device",
    4: "runtime",
    5: "wrong_answer",
    6: "build_timeout",
    7: "run_timeout",
    8: "unknown",
}

#: Costs from here on are TVM's marks for "no time" (1e10, in some logs 1e16), never a measurement.
MAX_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Iter:
    """One iterator of a stage before scheduling. ``kind`` is "S" (spatial) or "R" (reduction)."""

    name: str
    extent: int
    kind: str


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor read in a stage's body.

    ``dims`` has one entry for each dimension of the tensor: the (iterator index, coefficient) pairs of the
    index expression. Parts of an index that are not linear in the iterators are left out. ``stage`` is the
    producer's position in the unscheduled stage list; ``shape`` the tensor's shape.
    """

    stage: int
    dims: tuple[tuple[tuple[int, int], ...], ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of the compute DAG, in AutoScheduler's order. ``ops`` counts body operations by name."""

    name: str
    kind: str
    iters: tuple[Iter, ...] = ()
    reads: tuple[Access, ...] = ()
    ops: tuple[tuple[str, int], ...] = ()
    shape: tuple[int, ...] = ()
    dtype_bytes: int = 4


@dataclass(frozen=True)
class Workload:
    """What is tuned: a compute DAG on a target.

    ``stages`` is empty when the DAG is not available (a foreign log): actions are then still decoded and
    featurised, only without the facts that need the DAG. ``hardware`` is TVM's HardwareParams as in the log.
    ``threads`` is how many its programs run on, where that is told; 0: see `hardware.run_threads`.
    ``networks`` are all that have it, where they are known to be more than ``network``.
    """

    key: str
    target: str = ""
    hardware: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()
    flop_ct: float = 0.0
    network: str = ""
    desc: str = ""
    weight: int = 1
    threads: int = 0
    networks: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """16 hex digits of the SHA-256 of the workload key; names files, so never the key itself."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]

    def stages_json(self) -> str:
        """The stages as JSON, "" when there are none."""
        if not self.stages:
            return ""
        rows = [
            [
                s.name,
                s.kind,
                [[i.name, i.extent, i.kind] for i in s.iters],
                [[a.stage, [[list(p) for p in d] for d in a.dims], list(a.shape)] for a in s.reads],
                [list(o) for o in s.ops],
                list(s.shape),
                s.dtype_bytes,
            ]
            for s in self.stages
        ]
        return json.dumps(rows, separators=(",", ":"))

    @staticmethod
    def stages_from_json(text: str) -> tuple[Stage, ...]:
        """The inverse of :meth:`stages_json`."""
        if not text:
            return ()
        return tuple(
            Stage(
                name,
                kind,
                tuple(Iter(*i) for i in iters),
                tuple(
                    Access(s, tuple(tuple((int(p[0]), int(p[1])) for p in d) for d in dims), tuple(shape))
                    for s, dims, shape in reads
                ),
                tuple((str(o[0]), int(o[1])) for o in ops),
                tuple(shape),
                nbytes,
            )
            for name, kind, iters, reads, ops, shape, nbytes in json.loads(text)
        )


@dataclass(frozen=True, slots=True)
class Action:
    """One schedule primitive: its step code, its raw fields, and its text with every reference resolved."""

    code: str
    args: tuple[Any, ...]
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the hardware said: run times in seconds, TVM's error number, and when."""

    costs: tuple[float, ...]
    error_no: int = 0
    all_cost: float = 0.0
    timestamp: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether this is a time: no error, and every cost finite and positive (0 means not measured)."""
        return (
            self.error_no == 0
            and bool(self.costs)
            and all(math.isfinite(c) and 0 < c < MAX_SECONDS for c in self.costs)
        )

    @property
    def seconds(self) -> float:
        """Mean run time in seconds; NaN unless :attr:`ok`."""
        return sum(self.costs) / len(self.costs) if self.ok else math.nan

    @property
    def kind(self) -> str:
        """The error's short name; "unmeasured" and "bad_time" for what TVM calls no error."""
        if self.error_no:
            return ERROR_KINDS.get(self.error_no, f"error_{self.error_no}")
        if self.ok:
            return "ok"
        return "unmeasured" if all(c == 0 for c in self.costs) else "bad_time"


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a TenSet / AutoScheduler log."""

    workload_key: str
    target: str
    hardware: tuple[int, ...]
    layout_rewrite: int
    steps: list[list[Any]]
    measurement: Measurement
    version: str = "v0.6"
    target_host: str = ""
    input_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trajectory:
    """s0, a1, s1, ..., sK and the measured time (paper, Eq 7).

    ``states`` holds K+1 content hashes, or nothing where the record was not replayed.
    """

    workload_id: str
    steps: list[list[Any]]
    action_texts: tuple[str, ...]
    states: tuple[str, ...]
    measurement: Measurement
