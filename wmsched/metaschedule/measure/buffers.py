"""MetaSchedule local runner that times a program on several sets of buffers (AutoScheduler: `ansor.runner`).

TVM's own repeated allocation gives all sets the same distances between tensors. Here each set but the first
has gaps between its tensors.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from wmsched.ansor.runner import MAX_TWO_CALLS_SECONDS, evaluator
from wmsched.base.cores import apply_requested_threads
from wmsched.measure import cache_flush as quick_flush
from wmsched.measure.buffer_offsets import CALLS, PLACES, apart, place_seconds, timing
from wmsched.measure.corrections import Corrections
from wmsched.measure.paired import costs_of
from wmsched.measure.reference_store import ReferenceStore, fits
from wmsched.toolchain import parallel_launch

REFERENCE_TIMINGS, REFERENCE_MS = 3, 2  # timings of a reference, and milliseconds of each

_stores: dict[
    str, ReferenceStore
] = {}  # this process's, one for each runner: a folder is of one way of timing


def local_runner(
    *,
    places: int = PLACES,
    repeat: int = 1,
    min_repeat_ms: int = 60,
    cache_flush: bool = True,
    timeout: float = 30.0,
    paired: bool = True,
    corrections: Corrections | None = None,
) -> ms.runner.LocalRunner:
    """Return TVM's local runner for a processor that times each candidate on `places` sets of buffers.

    >>> ms.tune_tir(mod, target, work_dir, 64, runner=local_runner(places=3))

    Parameters
    ----------
    places : int
        Sets of buffers. A program whose two calls take over `MAX_TWO_CALLS_SECONDS` is timed on no further
        set.
    repeat : int
        Timings on each set.
    min_repeat_ms : int
        Minimum milliseconds of a candidate's timing on all sets together, each repeat. With 0 and
        `cache_flush` each call follows a flush, and a set's cost is the median of up to
        `buffer_offsets.CALLS`.
    cache_flush : bool
        Whether the caches are flushed before each timing (of several calls, unless `min_repeat_ms` is 0).
    timeout : float
        Maximum seconds of a candidate, including its worker's start.
    paired : bool
        Whether a candidate is timed together with the first one whose arguments have the same sizes
        (`wmsched.measure.paired`). No effect on one set of buffers.
    corrections : Corrections, optional
        Of a caller who corrects its records. References are then revised (`wmsched.measure.evidence`).
    """
    each = -(-min_repeat_ms // places)
    enough = place_seconds(MAX_TWO_CALLS_SECONDS, repeat, each)
    config = ms.runner.EvaluatorConfig(
        number=1,
        repeat=repeat,
        min_repeat_ms=each,
        enable_cpu_cache_flush=cache_flush,
    )
    paired = paired and places > 1
    if paired or (cache_flush and not min_repeat_ms):
        return PairedRunner(timeout, config, places, enough, paired=paired, corrections=corrections)
    return ms.runner.LocalRunner(
        timeout_sec=timeout,
        evaluator_config=config,
        alloc_repeat=places,
        f_alloc_argument=functools.partial(arguments, enough),
    )


@derived_object
class PairedRunner(ms.runner.LocalRunner._cls):  # type: ignore[misc]
    """TVM's local runner for a processor, with paired timing or cold caches."""

    def __init__(
        self,
        timeout: float,
        config: ms.runner.EvaluatorConfig,
        places: int,
        enough: float,
        *,
        paired: bool = True,
        corrections: Corrections | None = None,
    ) -> None:
        super().__init__(timeout_sec=timeout, evaluator_config=config, alloc_repeat=places)
        self.enough, self.paired = enough, paired
        parallel_launch.launch_path()  # compiled here, not within a candidate's time limit
        self.references = corrections or Corrections()
        self.revises = corrections is not None

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Return one completed future for each input, like TVM's runner."""
        return [self._run(one) for one in runner_inputs]

    def _run(self, one: Any) -> Any:
        config = self.evaluator_config
        flush = quick_flush.library() if config.enable_cpu_cache_flush else None
        how = (int(config.number), int(config.repeat), int(config.min_repeat_ms), flush)
        described = tuple(argument.as_json() for argument in one.args_info)
        folder = self.references.folder if self.paired else ""
        limit = float(self.timeout_sec)
        given = (folder, how, self.alloc_repeat, self.enough, str(one.artifact_path), described, limit)
        found, error = None, None
        try:
            found = self.pool.submit(timed, *given, self.revises).result()
        except TimeoutError:
            error = f"LocalRunner: Timeout, killed after {self.timeout_sec} seconds\n"
        except Exception as raised:  # a program's failure is its own error, as in TVM's runner
            error = f"LocalRunner: An exception occurred\n{raised}"
        return ms.runner.local_runner.LocalRunnerFuture(res=found, error_message=error)


def timed(
    folder: str,
    how: tuple[int, int, int, str | None],
    places: int,
    enough: float,
    path: str,
    described: Any,
    limit: float = math.inf,
    revises: bool = False,
) -> list[float]:
    """Return a program's times in seconds on `places` sets of buffers; runs in the runner's process.

    Parameters
    ----------
    folder : str
        Folder of the reference programs for paired timing; "" for unpaired timing.
    how : tuple
        The evaluator's number, repeat, minimum milliseconds, and path of the cache flush library
        (`cache_flush`; "" for TVM's own flush, None for none).
    places : int
    enough : float
        Maximum seconds of the timing on one set for another set to follow.
    path : str
        The program's library.
    described : sequence
        TVM's JSON of each argument; programs of equal `sizes` share a reference.
    limit : float
        Seconds after which TVM ends this process.
    revises : bool
        Whether references are revised.
    """
    import tvm
    from tvm.runtime import device as device_of
    from tvm.runtime import load_module

    if not parallel_launch.launch_path():
        apply_requested_threads(tvm)
    parallel_launch.leave_free(os.environ)
    number, repeat, least_ms, library = how
    flush = "" if library is None else quick_flush.preprocessor(library)
    cold = bool(flush) and not least_ms
    device = device_of("cpu", 0)
    module = load_module(path)
    parallel_launch.install(path, compared=True)

    def prepare(place: int) -> Callable[[], tuple[tuple[float, ...], bool]]:
        tensors = _argument_buffers(place, device, described)[1::2]
        evaluate = evaluator(module, device, flush, number, least_ms, tensors)
        device.sync()
        return timing(evaluate, repeat, enough, CALLS if cold else 0)

    def load(path: str, described: Any) -> Callable[[int], tuple[float, ...]]:
        tensors = _argument_buffers(0, device, described)[1::2]
        module = load_module(path)
        parallel_launch.install(path, compared=True)
        evaluate = evaluator(module, device, flush, 1, 0 if cold else REFERENCE_MS, tensors)
        return evaluate if cold else lambda _: evaluate(REFERENCE_TIMINGS)

    store = None
    if folder and fits((shape, dtype) for _, dtype, shape in described):
        store = _stores.setdefault(folder, ReferenceStore(folder, load, revises=revises))
    return list(costs_of(places, prepare, store, sizes(described), path, described, limit))


def sizes(described: Any) -> str:
    """Return the key of a paired reference: the arguments' types and sizes.

    Shapes are no part of it: a task's candidates have hundreds of weight layouts, and each reference has its
    own scale. A reference's first time is at times off by 10%, so the best scale would win, not the fastest
    candidate.
    """
    return repr([(dtype, math.prod(int(extent) for extent in shape)) for _, dtype, shape in described])


def arguments(enough: float, device: Any, described: Any, places: int) -> Iterator[list[Any]]:
    """Yield a program's arguments on one set of buffers after another; runs in the runner's process.

    Parameters
    ----------
    enough : float
        Maximum seconds of the timing on one set for another set to follow.
    device : tvm.runtime.Device
    described : sequence
        TVM's JSON of each argument: "TENSOR", type, shape.
    places : int

    Yields
    ------
    list of tensor
        The tensors of a set; those of the set before are freed.

    Raises
    ------
    NotImplementedError
        An argument is no tensor.
    """
    for place in range(places):
        found = _argument_buffers(place, device, described)
        tensors = found[1::2]
        began = time.monotonic()
        yield tensors
        tensors.clear()  # TVM still holds the list
        del found
        if time.monotonic() - began > enough:
            return


def _argument_buffers(place: int, device: Any, described: Any) -> list[Any]:
    """Return gap, tensor, gap, tensor, ... for set `place` (`apart`)."""
    import numpy as np
    from tvm import get_global_func
    from tvm.runtime import empty

    fill = get_global_func("tvm.contrib.random.random_fill_for_measure")

    def argument(one: Any) -> Any:
        kind, dtype, shape = one
        if kind != "TENSOR":
            raise NotImplementedError(f"an argument of kind {kind!r} cannot be made up")
        tensor = empty(shape, dtype, device)
        if dtype.startswith(("int", "uint", "bool")):  # TVM fills in bits of floats, which are bad indices
            tensor.copyfrom(np.zeros(shape, dtype))
        else:
            fill(tensor)
        return tensor

    return apart(place, described, argument, lambda size: empty((size,), "int8", device))
