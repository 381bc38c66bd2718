"""Has AutoScheduler's local runner time a program several times on several sets of buffers (needs its TVM).

TVM's runner has one set of buffers for every candidate, so a search takes what is fast there. Timed on
several sets (`wmsched.measure.buffer_offsets`), a candidate's record has one cost for each, and the mean of
them counts.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from wmsched.measure import cache_flush
from wmsched.measure.buffer_offsets import CALLS, CPU, PLACES, apart, logger, place_seconds, timing
from wmsched.measure.cache_flush import preprocessor
from wmsched.measure.paired import costs_of
from wmsched.measure.reference_store import ReferenceStore, fits
from wmsched.toolchain import parallel_launch
from wmsched.toolchain.parallel_launch import leave_free, replace_launch
from wmsched.toolchain.resolve import autoscheduler_tvm

#: Of this package, what a runner's process gets the code of, not names to import: it may lack the package.
SENT = (
    "wmsched.ansor.runner",
    "wmsched.measure.buffer_offsets",
    "wmsched.measure.cache_flush",
    "wmsched.measure.clock_probe",
    "wmsched.measure.paired",
    "wmsched.measure.reference",
    "wmsched.measure.reference_store",
    "wmsched.toolchain.parallel_launch",
)
SHELVES = "_wmsched_references"  # in TVM's module
WARM_MS = 2  # of a reference's timing, at least, where caches are not flushed
ENOUGH_SECONDS = 0.1  # for two calls: a program so slow is timed in no further place
ARGUMENTS = (
    "inp_serialized", "build_res", "args", "number", "repeat", "min_repeat_ms", "cooldown_interval",
    "enable_cpu_cache_flush", "verbose", "device",
)  # fmt: skip


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
        cloudpickle.register_pickle_by_value(sys.modules[name])
    shelf = tempfile.TemporaryDirectory(prefix="wmsched-paired-") if paired else nullcontext("")
    with shelf as folder:
        timer = functools.partial(timed, places, calls, ENOUGH_SECONDS, folder, cache_flush.library())
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


def _shelf(folder: str, flush: str, device: Any, launch: str) -> ReferenceStore:
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
        shelves[folder, flush] = ReferenceStore(folder, load)
    shelf: ReferenceStore = shelves[folder, flush]
    return shelf


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
