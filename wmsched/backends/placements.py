"""Has AutoScheduler's local runner time a program several times on several sets of buffers (needs its TVM).

Where the input of a program lies from its output can change its time severalfold: a schedule of ResNet-50's
max pooling takes 73 us on one pair of buffers and 270 us on most others, another 113 us on all. TVM's runner
has one set of buffers for every candidate, so a search takes what is fast there. Timed on several sets, each
with other gaps between its tensors, a candidate's record has one cost for each and the mean of them counts.

Such a cost is the median of a few calls, each after a flush. TVM's runner makes one, which on a shared
machine is off by a quarter of itself and one time in a hundred by more than twice: the best of 64 candidates
is then picked by luck as much as by speed. A median of a few does not see the odd slow one.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from wmsched import parallel_launch
from wmsched.backends import quick_flush
from wmsched.backends.paired import costs_of
from wmsched.backends.quick_flush import preprocessor
from wmsched.backends.shelf import Shelf, fits
from wmsched.parallel_launch import leave_free, replace_launch
from wmsched.resolve import autoscheduler_tvm

#: Of this package, what a runner's process gets the code of, not names to import: it may lack the package.
SENT = ("paired", "placements", "pulse", "quick_flush", "reference", "shelf")
PLACES = 3
CALLS = 30  # in a place at most, whose median is its cost; TVM's tutorials take the mean of 10 in one place
CALLS_SECONDS = 0.05  # fewer of a program that takes longer for them
PAGE = 4096
GAP_PAGES = (16, 1024)  # from 64 KiB, so that the gap is a mapping of its own as the tensors are, to 4 MiB
SHELVES = "_wmsched_references"  # in TVM's module
CPU = 1  # DLPack's number of the kind of device
WARM_MS = 2  # of a reference's timing, at least, where caches are not flushed
ENOUGH_SECONDS = 0.1  # for two calls: a program so slow is timed in no further place
ARGUMENTS = (
    "inp_serialized", "build_res", "args", "number", "repeat", "min_repeat_ms", "cooldown_interval",
    "enable_cpu_cache_flush", "verbose", "device",
)  # fmt: skip

logger = logging.getLogger(__name__)


@contextmanager
def several_places(places: int = PLACES, calls: int = CALLS, *, paired: bool = True) -> Iterator[None]:
    """Local runners time each program on `places` sets of buffers; RPC runners are left alone.

    Where caches are flushed, so that a timing is one call, it is the median of several of them instead: up to
    `calls`, which the timings of a runner with a `repeat` share. On a processor each is then a multiple of
    what the first program of the task takes just before and after (`paired`), unless that is false. With one
    place TVM's own function stays, and in a TVM whose runner works otherwise than 0.16's too, with a word in
    the log.
    """
    module = autoscheduler_tvm().auto_scheduler.measure
    before = getattr(module, "_timed_eval_func", None)
    known = before is not None and tuple(inspect.signature(before).parameters) == ARGUMENTS
    if places < 2 or not known:
        if not known:
            logger.info("this TVM's local runner is not known: programs are timed on one set of buffers")
        yield
        return
    import cloudpickle  # TVM's, which sends with it

    for name in SENT:
        cloudpickle.register_pickle_by_value(sys.modules[f"{__package__}.{name}"])
    cloudpickle.register_pickle_by_value(parallel_launch)
    shelf = tempfile.TemporaryDirectory(prefix="wmsched-paired-") if paired else nullcontext("")
    with shelf as folder:
        timer = functools.partial(timed, places, calls, ENOUGH_SECONDS, folder, quick_flush.library())
        timer = functools.partial(timer, launch=parallel_launch.launch_path())
        module._timed_eval_func = timer
        try:
            with _limits_told(module, timer):
                yield
        finally:
            module._timed_eval_func = before


@contextmanager
def _limits_told(module: Any, timer: Any) -> Iterator[None]:
    """TVM's `measure` tells `timer` after how many seconds it ends the runner's process."""
    before = getattr(module, "call_func_with_timeout", None)
    if before is None or not {"timeout", "func"} <= set(inspect.signature(before).parameters):
        yield
        return
    signature = inspect.signature(before)

    def call(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        if bound.arguments["func"] is timer:
            bound.arguments["func"] = functools.partial(timer, limit=float(bound.arguments["timeout"]))
        return before(*bound.args, **bound.kwargs)

    module.call_func_with_timeout = call
    try:
        yield
    finally:
        module.call_func_with_timeout = before


def timed(
    places: int,
    calls: int,
    enough: float,
    folder: str,
    library: str,
    *given: Any,
    limit: float = math.inf,
    launch: str = "",
) -> tuple[Any, int, str | None, float, float]:
    """Time a program in the runner's process, as TVM's `_timed_eval_func` does, on several sets of buffers.

    Parameters
    ----------
    places : int
        How many sets.
    calls : int
        Calls in a place at most, where caches are flushed: a cost is the median of its share of them.
    enough : float
        Seconds that two calls may take for another place to be tried.
    folder : str
        Where the programs are kept that others are timed beside; "" for timing them by themselves.
    library : str
        Of what flushes the caches (`quick_flush`); "" for TVM's function.
    *given
        What TVM's function is given; see `ARGUMENTS`.
    limit : float
        Seconds after which TVM ends this process, its rest after the timing included.
    launch : str
        Of our parallel launch (`parallel_launch`); "" for TVM's own.

    Returns
    -------
    tuple
        Costs in seconds, the error's number and text, seconds in all with the build's, time of the end.
    """
    import os
    import shutil
    import time

    from tvm.auto_scheduler import measure

    serialized, built, arguments, number, repeat, least_ms, cooldown, cold, verbose, device = given
    flush = preprocessor(library) if cold else ""
    start = time.time()
    costs: tuple[float, ...] = ()
    error, text = measure.MeasureErrorNo.COMPILE_DEVICE, None
    try:
        task = measure.MeasureInput.deserialize(serialized).task
        where = measure.ndarray.device(str(task.target), device)
        function = _load(built.filename, launch)
        error = measure.MeasureErrorNo.RUNTIME_DEVICE
        slow = place_seconds(enough, repeat, least_ms)

        def prepare(place: int) -> Callable[[], tuple[tuple[float, ...], bool]]:
            tensors = buffers(place, arguments, built.args, where)[1::2]
            evaluate = evaluator(function, where, flush, number, least_ms, tensors)
            where.sync()
            return timing(evaluate, repeat, slow, calls if cold else 0)

        shapes = [([int(extent) for extent in one.shape], str(one.dtype)) for one in built.args]
        shelf = None
        if folder and where.device_type == CPU and all(value is None for value in arguments) and fits(shapes):
            shelf = _shelf(folder, flush, where, launch)
        key = f"{task.workload_key} {task.target}"
        costs = costs_of(places, prepare, shelf, key, built.filename, shapes, limit - cooldown)
        error = measure.MeasureErrorNo.NO_ERROR
    except Exception:  # what a program does is its own affair: it becomes a record with an error
        costs, text = (measure.MAX_FLOAT,), measure.make_traceback_info()
    shutil.rmtree(os.path.dirname(built.filename))
    end = time.time()
    time.sleep(cooldown)
    if verbose >= 1:
        print("*E" if error else "*", end="", flush=True)
    return costs, int(error), text, end - start + built.time_cost, end


def evaluator(
    function: Any, device: Any, flush: str, number: int, least_ms: float, tensors: list[Any]
) -> Callable[[int], tuple[float, ...]]:
    """Makes so many timings by TVM's evaluator, in seconds; before each the function `flush`, if any."""

    def evaluate(repeat: int) -> tuple[float, ...]:
        timer = function.time_evaluator(
            function.entry_name,
            device,
            number=number,
            repeat=repeat,
            min_repeat_ms=least_ms,
            f_preproc=flush,
        )
        return tuple(float(cost) for cost in timer(*tensors).results)

    return evaluate


def timing(
    evaluate: Callable[[int], tuple[float, ...]], repeat: int, limit: float, calls: int
) -> Callable[[], tuple[tuple[float, ...], bool]]:
    """What finds a program's costs on a set of buffers, and whether it is too slow for another set.

    Parameters
    ----------
    evaluate : callable
        Makes so many timings, in seconds; see `evaluator`.
    repeat : int
        Costs that are wanted.
    limit : float
        Seconds for `repeat` timings, above which a program is slow.
    calls : int
        Timings at most that the costs are the medians of, where it is not; 0 for none but the first `repeat`.
    """
    import time

    def timed() -> tuple[tuple[float, ...], bool]:
        began = time.time()
        found = evaluate(repeat)
        slow = time.time() - began > limit
        if not slow and (more := more_calls(calls // repeat, repeat * max(found))):
            found = medians(found + evaluate(repeat * more), repeat)
        return found, slow

    return timed


def _load(path: str, launch: str) -> Any:
    """A program's module, with our parallel launch where there is one."""
    import os

    import tvm
    from tvm.auto_scheduler import measure

    module = measure.module.load_module(path)
    if launch:
        leave_free(os.environ)
        replace_launch(path, launch, int(tvm.runtime.num_threads()), compared=True)
    return module


def _shelf(folder: str, flush: str, device: Any, launch: str) -> Shelf:
    """This process's shelf of references in `folder`."""
    from tvm.auto_scheduler import measure

    def load(path: str, shapes: Any) -> Callable[[int], tuple[float, ...]]:
        import types

        function = _load(path, launch)
        described = [types.SimpleNamespace(shape=shape, dtype=dtype) for shape, dtype in shapes]
        tensors = buffers(0, [None] * len(shapes), described, device)[1::2]
        return evaluator(function, device, flush, 1, 0 if flush else WARM_MS, tensors)

    # each program comes with a new copy of this code: what stays is with TVM's module
    shelves = measure.__dict__.setdefault(SHELVES, {})
    if (folder, flush) not in shelves:
        shelves[folder, flush] = Shelf(folder, load)
    shelf: Shelf = shelves[folder, flush]
    return shelf


def more_calls(calls: int, seconds: float) -> int:
    """How many calls to make after one of so many seconds, for `calls` in all or what CALLS_SECONDS allow."""
    return max(0, min(calls, int(CALLS_SECONDS / max(seconds, 1e-9))) - 1)


def medians(timings: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The medians of `count` groups: timing k, k + count, k + 2 count, ... make the k-th."""
    from statistics import median

    return tuple(median(timings[k::count]) for k in range(count))


def place_seconds(enough: float, repeat: int, least_ms: float) -> float:
    """Seconds that the timing in a place may take for another to be tried.

    TVM's evaluator makes a first call that does not count, and overshoots the least time.

    Parameters
    ----------
    enough : float
        Seconds that two calls may take.
    repeat : int
        Timings in each place,
    least_ms : float
        and the milliseconds that each takes at least.
    """
    return max(enough, 3e-3 * least_ms) * (repeat + 1) / 2


def buffers(place: int, values: Any, shapes: Any, device: Any) -> list[Any]:
    """Tensors for a program's arguments, each after a gap: gap, tensor, gap, tensor, ...

    Parameters
    ----------
    place : int
        Number of the set; the gaps of a set are the same in every process, those of the first are none.
    values : sequence of array or None
        Values that an argument is to have; None for random ones.
    shapes : sequence
        What has the `shape` and the `dtype` of each argument.
    device : tvm.runtime.Device
    """
    from tvm import get_global_func
    from tvm.auto_scheduler.measure import ndarray

    fill = get_global_func("tvm.contrib.random.random_fill")

    def argument(given: Any) -> Any:
        value, wanted = given
        if value is not None:
            return ndarray.array(value, device)
        tensor = ndarray.empty(tuple(int(extent) for extent in wanted.shape), wanted.dtype, device)
        fill(tensor)
        return tensor

    return apart(
        place,
        zip(values, shapes, strict=True),
        argument,
        lambda size: ndarray.empty((size,), "int8", device),
    )


def apart(
    place: int, given: Iterable[Any], make: Callable[[Any], Any], gap: Callable[[int], Any]
) -> list[Any]:
    """Gap, tensor, gap, tensor, ...: what `make` makes of each of `given`, each after what `gap` makes of a
    number of bytes; those of a place are the same for every program, and the first has None."""
    import random

    sizes = random.Random(place)
    found: list[Any] = []
    for one in given:
        found.append(gap(PAGE * sizes.randint(*GAP_PAGES)) if place else None)
        found.append(make(one))
    return found
