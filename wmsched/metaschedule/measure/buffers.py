"""Has MetaSchedule's local runner time a program on several sets of buffers; `placements` is AutoScheduler's.

TVM's own repeated allocation makes the sets one like the other: mapped one after the other, an input lies as
far from the output in each. Here each set but the first has gaps between its tensors.
"""

from __future__ import annotations

import functools
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from wmsched.ansor.runner import MAX_TWO_CALLS_SECONDS, evaluator
from wmsched.base.cores import apply_requested_threads
from wmsched.measure import cache_flush as quick_flush
from wmsched.measure.buffer_offsets import CALLS, PLACES, apart, place_seconds, timing
from wmsched.measure.paired import costs_of
from wmsched.measure.reference_store import ReferenceStore, fits

REFERENCE_TIMINGS, REFERENCE_MS = 3, 2  # of a reference each time: so many, each of so many milliseconds

_shelves: dict[
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
) -> ms.runner.LocalRunner:
    """TVM's local runner for a processor, timing each candidate on `places` sets of buffers.

    It can be the ``runner=`` of ``ms.tune_tir`` and ``ms.relax_integration.tune_relax``.

    Parameters
    ----------
    places : int
        How many; a program that takes over `MAX_TWO_CALLS_SECONDS` for two calls is timed on no further one.
    repeat : int
        Timings on each.
    min_repeat_ms : int
        Milliseconds that a candidate is timed for at least, on all of them together, each repeat. With 0 and
        `cache_flush` each call comes after a flush; a set has the median of up to `placements.CALLS`.
    cache_flush : bool
        Whether the caches are flushed before each timing, which is of several calls unless they are cold.
    timeout : float
        Seconds that a candidate may take, its worker's start included.
    paired : bool
        Whether, on several sets of buffers, its time is taken beside that of the first candidate with
        arguments of the same sizes (`paired`).
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
        return PairedRunner(timeout, config, places, enough, paired=paired)
    return ms.runner.LocalRunner(
        timeout_sec=timeout,
        evaluator_config=config,
        alloc_repeat=places,
        f_alloc_argument=functools.partial(arguments, enough),
    )


@derived_object
class PairedRunner(ms.runner.LocalRunner._cls):  # type: ignore[misc]
    """TVM's local runner for a processor, whose candidates are timed beside another (`paired`), or cold."""

    def __init__(
        self,
        timeout: float,
        config: ms.runner.EvaluatorConfig,
        places: int,
        enough: float,
        *,
        paired: bool = True,
    ) -> None:
        super().__init__(timeout_sec=timeout, evaluator_config=config, alloc_repeat=places)
        self.enough, self.paired = enough, paired
        self.folder = tempfile.TemporaryDirectory(prefix="wmsched-paired-")

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """As TVM's: one future for each input, which is done."""
        return [self._run(one) for one in runner_inputs]

    def _run(self, one: Any) -> Any:
        config = self.evaluator_config
        flush = quick_flush.library() if config.enable_cpu_cache_flush else None
        how = (int(config.number), int(config.repeat), int(config.min_repeat_ms), flush)
        described = tuple(argument.as_json() for argument in one.args_info)
        folder = self.folder.name if self.paired else ""
        limit = float(self.timeout_sec)
        given = (folder, how, self.alloc_repeat, self.enough, str(one.artifact_path), described, limit)
        found, error = None, None
        try:
            found = self.pool.submit(timed, *given).result()
        except TimeoutError:
            error = f"LocalRunner: Timeout, killed after {self.timeout_sec} seconds\n"
        except Exception as raised:  # whatever a program does is an error of its own, as in TVM's runner
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
) -> list[float]:
    """In the runner's process: a program's times on so many sets of buffers, beside another one's.

    Parameters
    ----------
    folder : str
        Where the programs are kept that others are timed beside; "" for timing them by themselves.
    how : tuple
        TVM's evaluator's number, repeat, milliseconds at least, and the library that flushes the caches
        (`quick_flush`; "" for TVM's own flush, None for none).
    places : int
    enough : float
        Seconds that the timing on a place may take for another to follow.
    path : str
        The library.
    described : sequence
        TVM's JSON of each argument; what has the same `sizes` is timed beside the same reference.
    limit : float
        Seconds after which this process is ended.
    """
    import tvm
    from tvm.runtime import device as device_of
    from tvm.runtime import load_module

    apply_requested_threads(tvm)
    number, repeat, least_ms, library = how
    flush = "" if library is None else quick_flush.preprocessor(library)
    cold = bool(flush) and not least_ms
    device = device_of("cpu", 0)
    module = load_module(path)

    def prepare(place: int) -> Callable[[], tuple[tuple[float, ...], bool]]:
        tensors = _placed(place, device, described)[1::2]
        evaluate = evaluator(module, device, flush, number, least_ms, tensors)
        device.sync()
        return timing(evaluate, repeat, enough, CALLS if cold else 0)

    def load(path: str, described: Any) -> Callable[[int], tuple[float, ...]]:
        tensors = _placed(0, device, described)[1::2]
        evaluate = evaluator(load_module(path), device, flush, 1, 0 if cold else REFERENCE_MS, tensors)
        return evaluate if cold else lambda _: evaluate(REFERENCE_TIMINGS)

    shelf = None
    if folder and fits((shape, dtype) for _, dtype, shape in described):
        shelf = _shelves.setdefault(folder, ReferenceStore(folder, load))
    return list(costs_of(places, prepare, shelf, sizes(described), path, described, limit))


def sizes(described: Any) -> str:
    """What programs that are timed beside one another have in common: their arguments' types and sizes.

    Not their shapes: candidates of a task lay the weight out in hundreds of ways, and a reference for each
    would be a scale for each. What is called full speed when a reference is first timed is off by a tenth at
    times, and the candidate with the most favourable scale, not the fastest, would be the best of its task.
    """
    return repr([(dtype, math.prod(int(extent) for extent in shape)) for _, dtype, shape in described])


def arguments(enough: float, device: Any, described: Any, places: int) -> Iterator[list[Any]]:
    """A program's arguments in one place after the other, for TVM's evaluator; in the runner's process.

    Parameters
    ----------
    enough : float
        Seconds that the timing on a place may take for another to follow.
    device : tvm.runtime.Device
    described : sequence
        TVM's JSON of each argument: "TENSOR", type, shape.
    places : int

    Yields
    ------
    list of tensor
        The tensors of a place; those of the place before are freed.

    Raises
    ------
    NotImplementedError
        An argument is no tensor.
    """
    for place in range(places):
        found = _placed(place, device, described)
        tensors = found[1::2]
        began = time.monotonic()
        yield tensors
        tensors.clear()  # TVM still has the list
        del found
        if time.monotonic() - began > enough:
            return


def _placed(place: int, device: Any, described: Any) -> list[Any]:
    """Gap, tensor, gap, tensor, ...: see `apart`."""
    import numpy as np
    from tvm import get_global_func
    from tvm.runtime import empty

    fill = get_global_func("tvm.contrib.random.random_fill_for_measure")

    def argument(one: Any) -> Any:
        kind, dtype, shape = one
        if kind != "TENSOR":
            raise NotImplementedError(f"an argument of kind {kind!r} cannot be made up")
        tensor = empty(shape, dtype, device)
        if dtype.startswith(("int", "uint", "bool")):  # TVM would fill in the bits of floats: no good indices
            tensor.copyfrom(np.zeros(shape, dtype))
        else:
            fill(tensor)
        return tensor

    return apart(place, described, argument, lambda size: empty((size,), "int8", device))
