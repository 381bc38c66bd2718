"""Value types that all rooms share: workloads, actions, measurements, trajectories. No TVM, no torch."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

#: Short names of TVM's MeasureErrorNo.
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

#: Larger costs are TVM's marks for "no time" (1e10, in some logs 1e16).
MAX_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Iter:
    """One iterator of a stage before scheduling; ``kind`` is "S" (spatial) or "R" (reduction)."""

    name: str
    extent: int
    kind: str


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor read in a stage's body.

    ``dims`` has an entry for each dimension of the tensor: the (iterator index, coefficient) pairs of the
    index expression, without parts that are not linear. ``stage`` is the producer's position in the
    unscheduled stage list; ``shape`` is the tensor's shape.
    """

    stage: int
    dims: tuple[tuple[tuple[int, int], ...], ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of the compute DAG, in AutoScheduler's order; ``ops`` counts body operations by name."""

    name: str
    kind: str
    iters: tuple[Iter, ...] = ()
    reads: tuple[Access, ...] = ()
    ops: tuple[tuple[str, int], ...] = ()
    shape: tuple[int, ...] = ()
    dtype_bytes: int = 4


@dataclass(frozen=True)
class Workload:
    """A tuning task: a compute DAG on a target.

    ``stages`` is empty for a foreign log without the DAG; actions are then decoded and featurised without
    facts that need it. ``hardware`` is TVM's HardwareParams as in the log. ``threads`` is the thread count of
    its programs; 0 means `features.hardware.run_threads` decides. ``networks`` lists all networks with this
    workload if there are more than ``network``.

    Examples
    --------
    >>> workload = Workload(key='["dense", 8, 8]', target="llvm -mcpu=znver4")
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
        """First 16 hex digits of the SHA-256 of the workload key; used in file names instead of the key."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]

    def stages_json(self) -> str:
        """Return the stages as JSON; "" without stages."""
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
        """Return the stages in a text of :meth:`stages_json`."""
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
    """One schedule primitive: step code, raw fields, and text with every reference resolved."""

    code: str
    args: tuple[Any, ...]
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a measurement: run times in seconds, TVM's error number, and a timestamp."""

    costs: tuple[float, ...]
    error_no: int = 0
    all_cost: float = 0.0
    timestamp: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether this is a valid time: no error, every cost finite and positive (0: not measured)."""
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
        """Short name of the error; "unmeasured" and "bad_time" for invalid times without an error."""
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
    """States, actions and measured time of one candidate: s0, a1, s1, ..., sK (paper, Eq 7).

    ``states`` holds K + 1 content hashes; it is empty if the record was not replayed.
    """

    workload_id: str
    steps: list[list[Any]]
    action_texts: tuple[str, ...]
    states: tuple[str, ...]
    measurement: Measurement
