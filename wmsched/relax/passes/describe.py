"""What each function of a prepared module computes: in words, its operations, and the bytes it must move."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir.analysis import estimate_tir_flops

from wmsched.codegen.tir_reader import stages_of
from wmsched.relax.passes.isolate_gates import CALL_TIR
from wmsched.relax.passes.pipeline import visit_functions
from wmsched.schedules.types import Stage

__all__ = ["Described", "describe", "plain", "words"]

WHAT, OPERATIONS = "wmsched.what", "wmsched.operations"  # attributes of functions without loops to be read
MATRIX = ("matmul", "dense", "NT_matmul", "batch_matmul", "einsum")
WORDS = {
    "add": "add", "multiply": "multiply", "subtract": "subtract", "divide": "divide", "maximum": "maximum",
    "minimum": "minimum", "relu": "ReLU", "leakyrelu": "leaky ReLU", "sigmoid": "sigmoid", "silu": "SiLU",
    "gelu": "GELU", "gelu_tanh": "GELU", "erf": "erf", "tir_erf": "erf", "tir_tanh": "tanh", "tanh": "tanh",
    "tir_exp": "exp", "exp": "exp", "tir_sigmoid": "sigmoid", "tir_sqrt": "square root",
    "sqrt": "square root", "tir_rsqrt": "1 / square root", "rsqrt": "1 / square root", "power": "power",
    "clip": "clip", "softmax": "softmax", "log_softmax": "log softmax", "layer_norm": "layer norm",
    "rms_norm": "RMS norm", "group_norm": "group norm", "mean": "mean", "sum": "sum", "max": "maximum over",
    "min": "minimum over", "variance": "variance", "transpose": "transpose", "permute_dims": "transpose",
    "reshape": "reshape", "squeeze": "reshape", "expand_dims": "reshape", "concatenate": "concatenate",
    "split": "split", "strided_slice": "slice", "take": "look-up in a table", "gather": "gather",
    "gather_elements": "gather", "gather_nd": "gather", "cast": "conversion of type",
    "astype": "conversion of type", "pad": "padding", "where": "choice", "broadcast_to": "broadcast",
    "tile": "repetition", "adaptive_avg_pool2d": "average pool", "avg_pool2d": "average pool",
    "pool_avg": "average pool", "max_pool2d": "max pool", "pool_max": "max pool", "resize2d": "resize",
    "cumsum": "running sum", "batch_norm": "batch norm", "layout_transform": "layout change",
    "hardswish": "hard swish", "hardsigmoid": "hard sigmoid", "ones": "fill", "zeros": "fill",
    "full": "fill", "negative": "negation", "equal": "comparison", "less": "comparison",
    "greater": "comparison",
}  # fmt: skip


@dataclass(frozen=True)
class Described:
    """One function.

    Parameters
    ----------
    what : str
        In words, with its shapes.
    flops : float
        Arithmetic operations of a call; NaN where that is not known.
    read, written : float
        Bytes of arguments that a call must read and write, each once; what it keeps on the way is left out.
    weights : float
        Of what is read, the bytes that are constants of the model.
    view : bool
        Whether a call moves nothing: Relax makes it another shape of the same memory.
    """

    what: str
    flops: float
    read: float
    written: float
    weights: float = 0.0
    view: bool = False


def describe(prepared: Any) -> dict[str, Described]:
    """Describe the functions of a module that `pipeline.prepare` returned, by name."""
    weights: dict[str, float] = {}

    def visit(call: Any) -> None:
        if isinstance(call, relax.Call) and call.op == CALL_TIR:
            name = str(call.args[0].name_hint)
            sizes = (_nbytes(one.value) for one in call.args[1] if isinstance(one, tvm.ir.Constant))
            weights[name] = max(weights.get(name, 0.0), sum(sizes))

    visit_functions(prepared, visit)
    found = {}
    for variable, function in prepared.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            name = str(variable.name_hint)
            found[name] = _described(name, function, weights.get(name, 0.0))
    return found


def plain(functions: Mapping[str, Described]) -> dict[str, dict[str, Any]]:
    """What functions compute, for JSON: null in the place of NaN."""

    def number(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: {key: number(v) for key, v in asdict(one).items()} for name, one in functions.items()}


def _described(name: str, function: Any, weights: float) -> Described:
    if function.attrs and WHAT in function.attrs:
        return _by_attributes(function, weights)
    view = bool(relax.analysis.has_reshape_pattern(function))
    try:
        stages, _ = stages_of(function)
    except Exception:  # a library call, or of a form that the reader does not know
        return Described(words(name, ()), _flops(function, ()), math.nan, math.nan, weights, view)
    read, written = _traffic(stages)
    own = weights if math.isnan(read) else min(weights, read)
    return Described(words(name, stages), _flops(function, stages), read, written, own, view)


def _by_attributes(function: Any, weights: float) -> Described:
    """A kernel of ours that says what it computes: it reads its arguments and writes the last one."""
    what = ", ".join(WORDS.get(part, part) for part in str(function.attrs[WHAT]).split(", "))
    sizes = [_nbytes(parameter) for parameter in function.params]
    return Described(what, float(function.attrs[OPERATIONS]), sum(sizes[:-1]), sizes[-1], weights)


def _flops(function: Any, stages: Sequence[Stage]) -> float:
    """Operations, as TVM counts them; by iterations where it cannot; NaN where nothing is known."""
    try:
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        return float(estimate_tir_flops(module))
    except Exception:  # symbolic shapes, or operations that TVM does not count
        computed = [stage for stage in stages if stage.kind == "compute"]
        if not computed:
            return math.nan
        return float(sum(_iterations(s) * max(1, sum(n for o, n in s.ops if o != "Cast")) for s in computed))


def _iterations(stage: Stage) -> float:
    return math.prod(float(loop.extent) for loop in stage.iters)


def _traffic(stages: Sequence[Stage]) -> tuple[float, float]:
    """Bytes that are read and written: of each argument what its readers can touch, each element once."""
    touched = [0.0] * len(stages)
    inner = set()  # stages whose values another one reads
    for stage in stages:
        for access in stage.reads:
            if 0 <= access.stage < len(stages):
                touched[access.stage] = max(touched[access.stage], _iterations(stage))
                inner.add(access.stage)
    read = written = 0.0
    if not any(stage.kind == "compute" for stage in stages):
        return math.nan, math.nan  # of a form that has no blocks: a library call, a concatenation of many
    for k, stage in enumerate(stages):
        size = math.prod(stage.shape) * stage.dtype_bytes
        if stage.kind == "placeholder":
            read += min(float(size), touched[k] * stage.dtype_bytes)
        elif k not in inner:
            written += size
    return read, written


def _nbytes(tensor: Any) -> float:
    return (
        float(math.prod(map(int, tensor.shape)) * tensor.dtype.itemsize) if hasattr(tensor, "dtype") else 0.0
    )


def words(name: str, stages: Sequence[Stage]) -> str:
    """What a function computes: its largest operation with shapes, then those that are fused with it."""
    parts = [_plain(part) for part in _parts(name)]
    computed = [stage for stage in stages if stage.kind == "compute"]
    reduced = [stage for stage in computed if any(loop.kind == "R" for loop in stage.iters)]
    main = max(reduced, key=_iterations, default=None)
    first = _product(main, stages) if main is not None else ""
    if first:
        skipped = next((k for k, part in enumerate(parts) if part in ("convolution", "product")), None)
        parts = [part for k, part in enumerate(parts) if k != skipped]
        return f"{first}{', ' + ', '.join(parts) if parts else ''}"
    shape = computed[-1].shape if computed else ()
    return f"{', '.join(parts)}{f' of {_shape(shape)}' if shape else ''}"


def _parts(name: str) -> list[str]:
    """The operations in a fused function's name: ``fused_conv2d3_add`` has two."""
    text = re.sub(r"_(prepacked|cast_fp32)\d*", "", name).removeprefix("fused_")
    known = sorted([*WORDS, *MATRIX, *KINDS], key=len, reverse=True)
    pattern = re.compile("|".join(f"(?:{re.escape(one)})(?=\\d*(?:_|$))" for one in known))
    found = []
    while text:
        match = pattern.match(text)
        if match is None:
            part, _, text = text.partition("_")
        else:
            part, text = match.group(), text[match.end() :].lstrip("0123456789").lstrip("_")
        found.append(re.sub(r"\d+$", "", part) or part)
    return found


KINDS = {
    "conv1d": "convolution", "conv2d": "convolution", "conv3d": "convolution",
    "conv1d_transpose": "transposed convolution", "conv2d_transpose": "transposed convolution",
    "contrib_conv2d_NCHWc": "convolution", "depthwise_conv2d": "convolution", "grouped_conv2d": "convolution",
}  # fmt: skip


def _plain(part: str) -> str:
    if part in MATRIX:
        return "product"
    return KINDS.get(part) or WORDS.get(part) or part.removeprefix("tir_").replace("_", " ")


def _product(stage: Stage, stages: Sequence[Stage]) -> str:
    """A sum of products as a convolution or a matrix product; "" for another reduction."""
    counts = dict(stage.ops)
    if "Mul" not in counts or len(stage.reads) < 2:
        return ""
    out = _shape(stage.shape)
    if any("conv" in one.name.lower() for one in stages):
        window, channels = _window(stage)
        kind = f"of {channels} channels " if channels > 1 else ""
        return f"{window} {'' if kind else 'depthwise '}convolution {kind}to {out}"
    *batch, rows, columns = (1, 1, *stage.shape)
    summed = math.prod(loop.extent for loop in stage.iters if loop.kind == "R")
    times = math.prod(batch)
    size = f"{rows} x {summed} by {summed} x {columns}"
    return f"product of {size}{f', {times} times' if times > 1 else ''}"


def _window(stage: Stage) -> tuple[str, int]:
    """Extents of a convolution's window, and how many channels it sums over; 1: each channel by itself."""
    window, channels = [], 1
    for k, loop in enumerate(stage.iters):
        if loop.kind == "R" and loop.extent > 1:
            # the place in a window is added to the output's place; a channel's index stands alone
            if any(len(dim) == 1 and dim[0][0] == k for dim in stage.reads[0].dims):
                channels *= loop.extent
            else:
                window.append(loop.extent)
    return "x".join(str(extent) for extent in window) or "1x1", channels


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(str(extent) for extent in shape)
