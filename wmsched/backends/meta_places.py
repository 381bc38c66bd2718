"""Has MetaSchedule's local runner time a program on several sets of buffers; `placements` is AutoScheduler's.

TVM's own repeated allocation makes the sets one like the other: mapped one after the other, an input lies as
far from the output in each. Here each set but the first has gaps between its tensors.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

from tvm.s_tir import meta_schedule as ms

from wmsched.backends.placements import ENOUGH_SECONDS, PLACES, apart, place_seconds


def local_runner(
    *,
    places: int = PLACES,
    repeat: int = 1,
    min_repeat_ms: int = 60,
    cache_flush: bool = True,
    timeout: float = 30.0,
) -> ms.runner.LocalRunner:
    """TVM's local runner for a processor, timing each candidate on `places` sets of buffers.

    It can be the ``runner=`` of ``ms.tune_tir`` and ``ms.relax_integration.tune_relax``.

    Parameters
    ----------
    places : int
        How many; a program that takes over `ENOUGH_SECONDS` for two calls is timed on no further one.
    repeat : int
        Timings on each.
    min_repeat_ms : int
        Milliseconds that a candidate is timed for at least, on all of them together, each repeat.
    cache_flush : bool
        Whether the caches are flushed before each timing.
    timeout : float
        Seconds that a candidate may take, its worker's start included.
    """
    each = -(-min_repeat_ms // places)
    enough = place_seconds(ENOUGH_SECONDS, repeat, each)
    config = ms.runner.EvaluatorConfig(
        number=1,
        repeat=repeat,
        min_repeat_ms=each,
        enable_cpu_cache_flush=cache_flush,
    )
    return ms.runner.LocalRunner(
        timeout_sec=timeout,
        evaluator_config=config,
        alloc_repeat=places,
        f_alloc_argument=functools.partial(arguments, enough),
    )


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
