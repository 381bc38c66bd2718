"""Time of each function inside a tuned model, as it runs there: with the caches that the others leave."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from wmsched.measure.call_times import Call, clock
from wmsched.toolchain import parallel_launch
from wmsched.toolchain.loading import address
from wmsched.tune.tuned_model import TunedModel

if TYPE_CHECKING:  # it imports TVM
    from wmsched.relax.passes.describe import Described

__all__ = ["Profile", "Row", "inputs_of", "profile"]

LEAST_ROUNDS, MOST_ROUNDS = 5, 400
MORE_LOOKS = 2  # on a busy machine our launch now and then runs a loop on one thread
AGAIN_EVERY = 4  # rounds: so often each function is called twice, to see what caches are worth


@dataclass(frozen=True, kw_only=True)
class Row:
    """One function of a model, over one run of it.

    Parameters
    ----------
    name : str
        As the library has it.
    what : str
        What it computes, in words.
    calls : int
        In one run of the model.
    seconds : float
        Of all these calls together: the median of the runs.
    warm : float
        As long as they take with the same arguments at once again, which the caches hold then; NaN where not
        measured.
    flops, bytes : float
        Of all calls: arithmetic operations, and bytes of arguments read and written once each; NaN: unknown.
    weights : float
        Of these bytes, constants of the model.
    shapes : list of str
        Types and shapes of a call's arguments.
    loops, shared : int
        Parallel loops of all calls, and how many of them several threads ran; 0 where our launch is off.
    """

    name: str
    what: str
    calls: int
    seconds: float
    warm: float = math.nan
    flops: float = math.nan
    bytes: float = math.nan
    weights: float = math.nan
    shapes: tuple[str, ...] = ()
    loops: int = 0
    shared: int = 0

    @property
    def gflops(self) -> float:
        """1e9 operations a second."""
        return self.flops / self.seconds / 1e9 if self.seconds > 0 else math.nan

    @property
    def gbs(self) -> float:
        """1e9 bytes a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds > 0 else math.nan


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A model's functions, those that take longest first.

    Parameters
    ----------
    rows : list of Row
    seconds : float
        What shares are of: all functions, `machine` and `rest` together, each the median of the runs. A run
        that nothing disturbs takes as long.
    machine : float
        Seconds of the virtual machine's own functions in a run, allocations above all.
    rest : float
        Between the functions, without `clock`.
    clock : float
        By how much the clock lengthens a run beyond the functions: its quick runs less those without it.
    measured : float
        Median of a whole run without the clock: beyond `seconds` where other programs disturb most runs.
    rounds : int
    spread : tuple of 2 float
        Tenth and ninetieth percentile of the runs behind `measured`: far apart on a machine that others use.
    memory : float
        Bytes that a run touches: of all arguments of all functions, each place once.
    """

    rows: list[Row] = field(default_factory=list)
    seconds: float = math.nan
    machine: float = math.nan
    rest: float = math.nan
    clock: float = math.nan
    measured: float = math.nan
    rounds: int = 0
    spread: tuple[float, float] = (math.nan, math.nan)
    memory: float = math.nan

    def share(self, row: Row) -> float:
        """Of the model's time, between 0 and 1."""
        return row.seconds / self.seconds


def profile(
    model: TunedModel,
    inputs: Sequence[Any] | None = None,
    seconds: float = 3.0,
    *,
    functions: Mapping[str, Described] | None = None,
) -> Profile:
    """Time each function of a loaded model, inside the model.

    Runs with the clock and runs without take turns, so that a machine that slows down for a while slows both.

    Parameters
    ----------
    inputs : sequence of arrays or tensors, optional
        By default random numbers, and 0 of whole ones (`inputs_of`).
    seconds : float
        Of runs in all, about.
    functions : mapping of str to Described, optional
        What they compute (`wmsched.report.folder.functions_of`); without it operations are not known.
    """
    plain, clocked = list[float](), list[float]()
    single, double = list[list[Call]](), list[list[Call]]()
    with model.runs(*(inputs_of(model) if inputs is None else inputs)) as run:
        run(None)
        seen = _look(run)
        for _ in range(MORE_LOOKS):
            seen.take(_look(run))
        timer = clock(model.sync)
        began = time.perf_counter()
        while len(plain) < LEAST_ROUNDS or (
            time.perf_counter() - began < seconds and len(plain) < MOST_ROUNDS
        ):
            plain.append(run(None))
            timer.begin()
            clocked.append(run(timer.instrument))
            single.append(timer.calls())
            if len(plain) % AGAIN_EVERY == 1:
                timer.begin(again=True)
                run(timer.instrument)
                double.append(timer.calls())
    return _put_together(seen, plain, clocked, single, double, functions or {})


def inputs_of(model: TunedModel) -> list[np.ndarray[Any, Any]]:
    """Arrays of the model's shapes and types: random numbers; 0 of whole ones, an index into any table."""
    draw = np.random.default_rng(0)
    found = []
    for spec in model.inputs:
        kind = str(spec["dtype"])
        if kind.startswith("float"):
            found.append(draw.standard_normal(spec["shape"]).astype(kind))
        else:
            found.append(np.zeros(spec["shape"], kind))
    return found


@dataclass
class _Seen:
    """What the calls of one run were made with, in their order."""

    names: list[str] = field(default_factory=list)
    shapes: list[tuple[str, ...]] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    launches: list[tuple[int, int]] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # by its address, the bytes of what lies there

    def take(self, other: _Seen) -> None:
        """Take another run's launches where more of them were shared."""
        if other.names == self.names:
            self.launches = [max(a, b, key=lambda one: one[1]) for a, b in zip(self.launches, other.launches)]


def _look(run: Callable[[Any], float]) -> _Seen:
    """Run the model and note each call's arguments and parallel loops. It is slow, and times nothing."""
    found, started = _Seen(), list[tuple[int, dict[str, int]]]()

    def called(_function: Any, name: Any, before: bool, _result: Any, *arguments: Any) -> int:
        if before:
            tensors = [one for one in arguments if hasattr(one, "dtype") and hasattr(one, "shape")]
            found.names.append(str(name))
            found.shapes.append(tuple(f"{t.dtype} {'x'.join(map(str, t.shape)) or '1'}" for t in tensors))
            sizes = [math.prod(t.shape) * t.dtype.itemsize for t in tensors]
            found.sizes.append(float(sum(sizes)))
            for tensor, size in zip(tensors, sizes, strict=True):
                place = address(tensor)
                found.places[place] = max(size, found.places.get(place, 0))
            found.launches.append((0, 0))
            started.append((len(found.names) - 1, parallel_launch.counts()))
        else:
            place, counts = started.pop()
            now = parallel_launch.counts()
            shared = now["shared"] - counts["shared"]
            found.launches[place] = (shared + now["alone"] - counts["alone"], shared)
        return 0

    run(called)
    return found


def _put_together(
    seen: _Seen,
    plain: list[float],
    clocked: list[float],
    single: list[list[Call]],
    double: list[list[Call]],
    functions: Mapping[str, Described],
) -> Profile:
    """Rows of medians: of a function's calls in each run together."""
    own = {name for name in seen.names if name.startswith("vm.")}
    spent, warm = _by_name(single, lambda call: call.seconds), _by_name(double, lambda call: call.again)
    rows = []
    for name in dict.fromkeys(seen.names):
        if name in own or name not in spent:
            continue
        places = [k for k, one in enumerate(seen.names) if one == name]
        about = described(name, functions)
        moved = sum(seen.sizes[k] for k in places)
        if about is not None and math.isfinite(about.read):
            moved = len(places) * (about.read + about.written)
        rows.append(
            Row(
                name=name,
                what=name if about is None else about.what,
                calls=len(places),
                seconds=statistics.median(spent[name]),
                warm=statistics.median(warm[name]) if name in warm else math.nan,
                flops=math.nan if about is None else about.flops * len(places),
                bytes=moved,
                weights=math.nan if about is None else about.weights * len(places),
                shapes=seen.shapes[places[0]],
                loops=sum(seen.launches[k][0] for k in places),
                shared=sum(seen.launches[k][1] for k in places),
            )
        )
    rows.sort(key=lambda row: -row.seconds)
    machine = sum(statistics.median(spent[name]) for name in own if name in spent)
    gaps = [run - sum(call.seconds for call in calls) for run, calls in zip(clocked, single, strict=True)]
    cost = max(0.0, _quick(clocked) - _quick(plain))
    rest = max(0.0, statistics.median(gaps) - cost)
    return Profile(
        rows=rows,
        seconds=machine + rest + sum(row.seconds for row in rows),
        machine=machine,
        rest=rest,
        clock=cost,
        measured=statistics.median(plain),
        rounds=len(plain),
        spread=(_quick(plain), sorted(plain)[-1 - len(plain) // 10]),
        memory=float(sum(seen.places.values())),
    )


def _quick(seconds: list[float]) -> float:
    """The tenth percentile: what few other programs disturb."""
    return sorted(seconds)[len(seconds) // 10]


def _by_name(runs: list[list[Call]], value: Any) -> dict[str, list[float]]:
    """By function, of each run the sum of its calls' values; what was not measured is left out."""
    found: dict[str, list[float]] = {}
    for calls in runs:
        sums: dict[str, float] = {}
        for call in calls:
            sums[call.name] = sums.get(call.name, 0.0) + value(call)
        for name, total in sums.items():
            if math.isfinite(total):
                found.setdefault(name, []).append(total)
    return found


def described(name: str, functions: Mapping[str, Described]) -> Described | None:
    """What a function computes under the name that it has in the library."""
    from wmsched.tune.in_model_selection import PREPACKED

    found = functions.get(name)
    return functions.get(PREPACKED.sub("", name)) if found is None else found
