"""AutoScheduler local runner that times a program on several sets of buffers (needs its TVM).

TVM's runner uses one set of buffers for all candidates, so a search picks what is fast at those addresses.
Several sets (`wmsched.measure.buffer_offsets`) give a record one cost each; their mean counts.
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
from wmsched.measure.corrections import Corrections
from wmsched.measure.paired import costs_of
from wmsched.measure.reference_store import ReferenceStore, fits
from wmsched.toolchain import parallel_launch
from wmsched.toolchain.parallel_launch import leave_free, replace_launch
from wmsched.toolchain.resolve import autoscheduler_tvm

#: Modules sent by value to the runner's process, which may lack this package.
PICKLED_MODULES = (
    "wmsched.ansor.runner",
    "wmsched.measure.buffer_offsets",
    "wmsched.measure.cache_flush",
    "wmsched.measure.clock_probe",
    "wmsched.measure.corrections",
    "wmsched.measure.evidence",
    "wmsched.measure.paired",
    "wmsched.measure.reference",
    "wmsched.measure.reference_store",
    "wmsched.toolchain.parallel_launch",
)
STORES_NAME = "_wmsched_references"  # in TVM's module
MIN_REFERENCE_MS = 2  # minimum milliseconds of a reference's timing without cache flush
MAX_TWO_CALLS_SECONDS = 0.1  # a program whose two calls take longer is timed on no further set of buffers
TIMED_EVAL_ARGUMENTS = (
    "inp_serialized", "build_res", "args", "number", "repeat", "min_repeat_ms", "cooldown_interval",
    "enable_cpu_cache_flush", "verbose", "device",
)  # fmt: skip


@contextmanager
def several_places(
    places: int = PLACES, calls: int = CALLS, *, paired: bool = True, corrections: Corrections | None = None
) -> Iterator[None]:
    """Have local runners time each program on `places` sets of buffers; RPC runners stay unchanged.

    Cache flush limits a timing to one call. A cost is then the median of up to `calls` calls, shared among
    the `repeat` timings. `paired` divides it, on a processor, by the time of the task's first program just
    before and after. TVM's own function stays if `places` is 1, or if this TVM's runner differs from 0.16's;
    the log says so.

    `corrections` are of a caller who corrects its records: references are then revised
    (`wmsched.measure.evidence`).
    """
    module = autoscheduler_tvm().auto_scheduler.measure
    before = getattr(module, "_timed_eval_func", None)
    known = before is not None and tuple(inspect.signature(before).parameters) == TIMED_EVAL_ARGUMENTS
    if places < 2 or not known:
        if not known:
            logger.info("this TVM's local runner is not known: programs are timed on one set of buffers")
        yield
        return
    import cloudpickle  # TVM sends work with it

    for name in PICKLED_MODULES:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    references: Any = tempfile.TemporaryDirectory(prefix="wmsched-paired-") if paired else nullcontext("")
    if paired and corrections is not None:
        references = nullcontext(corrections.folder)
    with references as folder:
        timer = functools.partial(timed, places, calls, MAX_TWO_CALLS_SECONDS, folder, cache_flush.library())
        timer = functools.partial(
            timer, launch=parallel_launch.launch_path(), revises=corrections is not None
        )
        module._timed_eval_func = timer
        try:
            with _pass_time_limit(module, timer):
                yield
        finally:
            module._timed_eval_func = before


@contextmanager
def _pass_time_limit(module: Any, timer: Any) -> Iterator[None]:
    """Pass `timer` the seconds after which TVM's `measure` ends the runner's process."""
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
    revises: bool = False,
) -> tuple[Any, int, str | None, float, float]:
    """Time a program in the runner's process on several sets of buffers, as TVM's `_timed_eval_func` does.

    Parameters
    ----------
    places : int
        Number of sets of buffers.
    calls : int
        Maximum calls on one set with cache flush; a cost is the median of its share of them.
    enough : float
        Maximum seconds of two calls for another set to be tried.
    folder : str
        Folder of the reference programs for paired timing; "" for unpaired timing.
    library : str
        Path of the cache flush library (`cache_flush`); "" for TVM's function.
    *given
        Arguments of TVM's function (`TIMED_EVAL_ARGUMENTS`).
    limit : float
        Seconds after which TVM ends this process, its rest after the timing included.
    launch : str
        Of our parallel launch (`parallel_launch`); "" for TVM's own.
    revises : bool
        Whether references are revised.

    Returns
    -------
    tuple
        Costs in seconds, error number, error text, total seconds with the build's, end time.
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
        store = None
        if folder and where.device_type == CPU and all(value is None for value in arguments) and fits(shapes):
            store = _reference_store(folder, flush, where, launch, revises)
        key = f"{task.workload_key} {task.target}"
        costs = costs_of(places, prepare, store, key, built.filename, shapes, limit - cooldown)
        error = measure.MeasureErrorNo.NO_ERROR
    except Exception:  # a program's failure becomes a record with an error
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
    """Return a function of `repeat` that returns as many timings in seconds, with `flush` before each."""

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


def _reference_store(folder: str, flush: str, device: Any, launch: str, revises: bool) -> ReferenceStore:
    """This process's shelf of references in `folder`."""
    from tvm.auto_scheduler import measure

    def load(path: str, shapes: Any) -> Callable[[int], tuple[float, ...]]:
        import types

        function = _load(path, launch)
        described = [types.SimpleNamespace(shape=shape, dtype=dtype) for shape, dtype in shapes]
        tensors = buffers(0, [None] * len(shapes), described, device)[1::2]
        return evaluator(function, device, flush, 1, 0 if flush else MIN_REFERENCE_MS, tensors)

    # each program brings a new copy of this code, so the stores live in TVM's module
    stores = measure.__dict__.setdefault(STORES_NAME, {})
    if (folder, flush) not in stores:
        stores[folder, flush] = ReferenceStore(folder, load, revises=revises)
    store: ReferenceStore = stores[folder, flush]
    return store


def buffers(place: int, values: Any, shapes: Any, device: Any) -> list[Any]:
    """Return tensors for a program's arguments, each after a gap: gap, tensor, gap, tensor, ...

    Parameters
    ----------
    place : int
        Number of the set. Its gaps are the same in every process; set 0 has none.
    values : sequence of array or None
        Values of each argument; None for random ones.
    shapes : sequence
        Objects with the `shape` and the `dtype` of each argument.
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
