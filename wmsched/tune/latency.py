"""Whole-model latency: libraries and PyTorch timed interleaved in one process, with compared outputs."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wmsched.base.cores import apply_requested_threads
from wmsched.codegen.tf32 import KEY
from wmsched.measure.clock_probe import pause
from wmsched.relax.importers.model import Model, tensors
from wmsched.toolchain import parallel_launch
from wmsched.toolchain.resolve import device_name

ROUNDS = 7
QUICK_ROUNDS = 3  # after a construction, which takes seconds itself
TOLERANCE = 1e-3  # of float32 outputs, over the largest: what another order of summation may change
COARSE = 3e-2  # of shorter types, in or out: a rounding step of bfloat16 is 8e-3, of int8 as much
BFLOAT16 = 3e-2  # of models whose products are in bfloat16 (`--bf16`), compared with float32
QUANTIZED = 0.1  # of models that round to 8 bits on the way: what falls the other way once is carried on
HUGE = 1e30  # no model computes it: a mask's minus infinity is beyond
AT_LEAST = 0.1  # seconds of calls that make one timing
REST = 0.3  # seconds before a timing: threads that are done wait in a loop first, which takes a core
AT_MOST = 15.0  # seconds after which a slow model is not timed again


def loaded(path: Path, target: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """An exported library's virtual machine, and the arguments of its ``main``, where the target is.

    Parameters
    ----------
    path : Path
        One that this process has loaded before gives that library again, whatever is in the file now.
    inputs : sequence of torch.Tensor
    """
    import tvm
    from tvm import relax

    device = tvm.runtime.device(device_name(target), 0)
    module = tvm.runtime.load_module(str(path))
    if not parallel_launch.install(path, compared=True):
        apply_requested_threads(tvm)
    machine = relax.VirtualMachine(module, device)
    return machine, _arguments(inputs, device)


def _arguments(inputs: Sequence[Any], device: Any) -> list[Any]:
    import tvm

    host = [tvm.runtime.from_dlpack(data) for data in inputs]
    return host if device == tvm.cpu(0) else [data.copyto(device) for data in host]


def library_call(path: Path, target: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function that runs ``main`` of an exported library once and waits for it; see `loaded`.

    It takes other inputs of the same shapes and types in place of `inputs`, if it is given them.
    """
    import tvm

    machine, arguments = loaded(path, target, inputs)
    device, main = tvm.runtime.device(device_name(target), 0), machine["main"]

    def call(others: Sequence[Any] | None = None) -> Any:
        output = main(*(arguments if others is None else _arguments(others, device)))
        device.sync()
        return output

    return call


def time_interleaved(calls: Mapping[str, Callable[[], Any]], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of a call, each of `calls` timed `rounds` times, one after the other in turn.

    A call that takes long is timed less often. The first call of each sets things up: it must have been.
    A call with a method `timing` makes its own, elsewhere.
    TVM's threads wait for more for a tenth of a second before they sleep; PyTorch's BERT took 220 to 270 ms
    right after it on two cores, 150 after a rest.
    """
    spent = dict.fromkeys(calls, 0.0)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if found[name] and spent[name] > AT_MOST:
                continue
            if not isinstance(call, Known):
                pause(REST)
            elapsed, count = getattr(call, "timing", functools.partial(timing, call))()
            found[name].append(elapsed / count)
            spent[name] += elapsed
    return {name: statistics.median(times) for name, times in found.items()}


class Known:
    """A call that was timed before; it is not made again.

    >>> time_interleaved({"untuned": Known(47.0)})
    {'untuned': 47.0}
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> Any:
        raise RuntimeError("a call whose time is known is not made again")

    def timing(self) -> tuple[float, int]:
        """Its seconds, and that they are of one call."""
        return self.seconds, 1


def time_each(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of a call, each of `calls` timed `QUICK_ROUNDS` times in a row, after one rest.

    It takes half as long as `time_interleaved` with so many rounds, and a machine that slows down meanwhile
    is not seen.
    """
    found = {}
    for name, call in calls.items():
        pause(REST)
        turns = (getattr(call, "timing", functools.partial(timing, call))() for _ in range(QUICK_ROUNDS))
        found[name] = statistics.median(elapsed / count for elapsed, count in turns)
    return found


def timing(call: Callable[[], Any]) -> tuple[float, int]:
    """Seconds of as many calls as take `AT_LEAST`, and their number."""
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < AT_LEAST or not count:
        call()
        count += 1
    return elapsed, count


def tolerance(data: Sequence[Any], module: Any = None) -> float:
    """What a `difference` may be with inputs and outputs of such types: short ones round coarsely.

    So do those that a module of Relax's operators, where one is given, computes on the way.
    """
    inside = _computed(module) if module is not None else set()
    if inside & {"int8", "uint8"}:
        return QUANTIZED
    short = any(str(x.dtype).removeprefix("torch.") != "bool" and x.dtype.itemsize < 4 for x in data)
    return COARSE if short or inside & {"float16", "bfloat16", KEY} else TOLERANCE


def _computed(module: Any) -> set[str]:
    """The types of what a module's operators give, and "tf32" where its products are computed so."""
    from tvm import relax

    from wmsched.relax.passes.pipeline import visit_functions

    found = {KEY} if module.attrs is not None and KEY in module.attrs else set()

    def visit(expression: Any) -> None:
        if not isinstance(expression, relax.Call) or not isinstance(expression.ty, relax.TensorType):
            return
        name = str(getattr(expression.op, "name", ""))
        if name in ("relax.max", "relax.min"):
            return  # of truths as bytes, in an attention's mask; and they round nothing
        if name == "relax.astype":
            given = expression.args[0].ty
            if isinstance(given, relax.TensorType) and str(given.dtype) == "bool":
                return  # truths that are compared, which rounds nothing
        found.add(str(expression.ty.dtype))

    visit_functions(module, visit)
    return found


def deviation(output: Any, reference: Any, model: Model, *, bf16: bool = False) -> tuple[float, float]:
    """The `difference` of two outputs of a model, and what it may be with its types, or in bfloat16."""
    data = [*model.inputs.values(), *tensors(reference)]
    allowed = tolerance(data, model.module)
    return difference(output, reference), max(allowed, BFLOAT16) if bf16 else allowed


def difference(output: Any, reference: Any) -> float:
    """Largest difference between two outputs, over the largest value of the reference.

    What stands for minus infinity in a mask (beyond `HUGE`) is no value: it must stand in the same places.
    NaN counts as infinite where the reference has none, and so do other numbers of tensors or shapes.
    """
    import torch

    ours, theirs = list(tensors(output)), list(tensors(reference))
    if [tuple(t.shape) for t in ours] != [tuple(t.shape) for t in theirs]:
        return float("inf")
    largest = 0.0
    for one, other in zip(ours, theirs):
        if not one.numel():
            continue
        a, b = one.detach().to("cpu", torch.float64), other.detach().to("cpu", torch.float64)
        if not torch.equal(torch.isnan(a), torch.isnan(b)):
            return float("inf")
        if not torch.equal((a > HUGE).int() - (a < -HUGE).int(), (b > HUGE).int() - (b < -HUGE).int()):
            return float("inf")
        values = b.abs() <= HUGE
        if not values.any():
            continue
        a, b = a[values], b[values]
        scale = max(float(b.abs().max()), 1e-12)
        largest = max(largest, float((a - b).abs().max()) / scale)
    return largest
