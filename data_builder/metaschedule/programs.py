"""Training programs for MetaSchedule: operators of common networks, in shapes that no benchmark task has.

Each is one of `RECIPES`, a few numbers, built with TVM's operator library when it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_builder.metaschedule.recipes import RECIPES
from wmsched.base.errors import DatasetError, UnknownName
from wmsched.schedules.workload_file import READ_ERRORS, read_json


@dataclass(frozen=True, slots=True)
class Program:
    """One program to tune: its labels and its module's JSON or recipe."""

    network: str
    desc: str
    recipe: tuple[str, tuple[int, ...]] | None = None
    module_json: str = ""

    def module(self) -> Any:
        """The `tvm.IRModule`, normalized as MetaSchedule does, so that hashes agree."""
        import tvm
        from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

        if self.recipe is not None:
            return _normalize_mod(_primfunc(*self.recipe))
        return _normalize_mod(tvm.ir.load_json(self.module_json))


def training_programs() -> list[Program]:
    """The programs of `RECIPES`."""
    return [
        Program(network, f"{kind} {'x'.join(map(str, shape))}", (kind, shape))
        for network, kind, shape in RECIPES
    ]


def read_programs(source: str) -> list[Program]:
    """Programs by what the command line names.

    Parameters
    ----------
    source : str
        "train", or a JSON file (plain or gzip): a list of {"network", "desc", "module": TVM's save_json}.

    Raises
    ------
    DatasetError
        The file is no such list.
    """
    if source == "train":
        return training_programs()
    try:
        return [
            Program(str(row.get("network", "")), str(row.get("desc", "")), None, _text(row["module"]))
            for row in read_json(source)
        ]
    except (*READ_ERRORS, TypeError, KeyError, AttributeError) as error:
        raise DatasetError(
            f"{source} is not a list of programs ({error!r}): rows need network, desc and module, TVM's "
            'save_json of an IRModule; or name "train", the training programs that come with wmsched'
        ) from error


def _text(module: Any) -> str:
    return module if isinstance(module, str) else json.dumps(module)


def select(programs: Sequence[Program], spec: str) -> list[tuple[int, Program]]:
    """Choose by comma-separated numbers, ranges such as 3-7, parts of names, or "all".

    Raises
    ------
    UnknownName
        A part chooses nothing.
    """
    chosen: dict[int, Program] = {}
    for term in filter(None, (part.strip() for part in spec.split(","))):
        first, dash, last = term.partition("-")
        if term == "all":
            found = dict(enumerate(programs))
        elif first.isdigit() and (last.isdigit() or not dash):
            numbers = range(int(first), int(last or first) + 1)
            found = {k: programs[k] for k in numbers if k < len(programs)}
        else:
            found = {k: p for k, p in enumerate(programs) if term in p.network or term in p.desc}
        if not found:
            raise UnknownName(
                f"--tasks {term!r} chooses none of the {len(programs)} programs, numbered from 0"
            )
        chosen.update(found)
    return [(k, chosen[k]) for k in sorted(chosen)]


def _primfunc(kind: str, shape: tuple[int, ...]) -> Any:
    from tvm import te

    return te.create_prim_func(list(_tensors(kind, shape)))


def _tensors(kind: str, s: tuple[int, ...]) -> tuple[Any, ...]:
    """Arguments and result of a recipe, as tensor expressions."""
    from tvm import te, topi

    def tensor(name: str, *dims: int) -> Any:
        return te.placeholder(dims, name=name)

    head, _, tail = kind.partition("_")
    for layout in ("nhwc", "ndhwc", "nt"):
        if tail.startswith(layout):
            return _last(kind, s)
    if head == "conv2d":
        n, c, h, w, f, k, stride, pad = s
        x, y, b = tensor("data", n, c, h, w), tensor("weight", f, c, k, k), tensor("bias", 1, f, 1, 1)
        return _finish(tail, topi.nn.conv2d_nchw(x, y, stride, pad, 1), (x, y), b)
    if head == "conv3d":
        n, c, d, h, w, f, k, stride, pad = s
        x, y = tensor("data", n, c, d, h, w), tensor("weight", f, c, k, k, k)
        b = tensor("bias", 1, f, 1, 1, 1)
        return _finish(tail, topi.nn.conv3d_ncdhw(x, y, stride, pad, 1, 1), (x, y), b)
    if head == "depthwise":
        n, c, h, w, k, stride, pad = s
        x, y, b = tensor("data", n, c, h, w), tensor("weight", c, 1, k, k), tensor("bias", 1, c, 1, 1)
        return _finish(tail, topi.nn.depthwise_conv2d_nchw(x, y, (stride, stride), pad, 1), (x, y), b)
    if head == "dense":
        m, k, n = s
        x, y, b = tensor("data", m, k), tensor("weight", k, n), tensor("bias", n)
        return _finish(tail, topi.matmul(x, y), (x, y), b)
    if kind.startswith("batch_matmul_nt"):
        return _last(kind, s)
    if kind.startswith("batch_matmul"):
        b_, m, n, k = s
        x, y = tensor("a", b_, m, k), tensor("b", b_, k, n)
        out = topi.nn.batch_matmul(x, y, transpose_b=False)
        return x, y, topi.multiply(out, 0.125) if kind.endswith("scale") else out
    if kind == "softmax":
        x = tensor("data", *s)
        return x, topi.nn.softmax(x, axis=-1)
    if kind == "layer_norm":
        x, g, b = tensor("data", *s), tensor("gamma", s[-1]), tensor("beta", s[-1])
        return x, g, b, topi.nn.layer_norm(x, g, b, axis=[-1], epsilon=1e-5)
    if kind in ("mean", "variance"):
        x, m = tensor("data", *s), tensor("mean", s[0], 1)
        gap = topi.subtract(x, m)
        values = x if kind == "mean" else topi.multiply(gap, gap)
        out = topi.divide(topi.sum(values, axis=-1, keepdims=True), float(s[-1]))
        return (x, out) if kind == "mean" else (x, m, out)
    if kind.endswith("pool_nhwc"):
        return _last(kind, s)
    if kind in ("max_pool", "avg_pool"):
        n, c, h, w, k, stride, pad = s
        x = tensor("data", n, c, h, w)
        pool = kind.removesuffix("_pool")
        return x, topi.nn.pool2d(x, (k, k), (stride, stride), (1, 1), (pad, pad, pad, pad), pool)
    if kind == "global_pool":
        x = tensor("data", *s)
        return x, topi.nn.global_pool(x, "avg")
    if kind == "add_gelu":
        x, b = tensor("data", *s), tensor("bias", s[-1])
        return x, b, _gelu(topi.add(x, b))
    raise UnknownName(f"no recipe for {kind!r}")


def _last(kind: str, s: tuple[int, ...]) -> tuple[Any, ...]:
    """As `_tensors`: channels last, or the second matrix transposed."""
    from tvm import te, topi

    def tensor(name: str, *dims: int) -> Any:
        return te.placeholder(dims, name=name)

    if kind == "global_pool_nhwc":
        x = tensor("data", *s)
        return x, topi.nn.adaptive_pool(x, (1, 1), "avg", layout="NHWC")
    if kind.endswith("pool_nhwc"):
        n, h, w, c, k, stride, pad = s
        x = tensor("data", n, h, w, c)
        window = ((k, k), (stride, stride), (1, 1), (pad,) * 4)
        return x, topi.nn.pool2d(x, *window, kind[:3], layout="NHWC")
    if kind.startswith("conv2d_nhwc"):
        n, h, w, c, f, k, stride, pad = s
        x, y = tensor("data", n, h, w, c), tensor("weight", k, k, c, f)
        out, bias = topi.nn.conv2d_nhwc(x, y, stride, pad, 1), tensor("bias", 1, 1, 1, f)
    elif kind.startswith("depthwise_nhwc"):
        n, h, w, c, k, stride, pad = s
        x, y = tensor("data", n, h, w, c), tensor("weight", k, k, c, 1)
        out, bias = topi.nn.depthwise_conv2d_nhwc(x, y, stride, pad, 1), tensor("bias", 1, 1, 1, c)
    elif kind.startswith("conv3d_ndhwc"):
        n, d, h, w, c, f, k, stride, pad = s
        x, y = tensor("data", n, d, h, w, c), tensor("weight", k, k, k, c, f)
        out, bias = topi.nn.conv3d_ndhwc(x, y, stride, pad, 1, 1), tensor("bias", 1, 1, 1, 1, f)
    elif kind.startswith("dense_nt"):
        m, k, f = s
        x, y = tensor("data", m, k), tensor("weight", f, k)
        out, bias = topi.nn.dense(x, y), tensor("bias", 1, f)
    elif kind.startswith("batch_matmul_nt"):
        batch, m, f, k = s
        x, y = tensor("a", batch, m, k), tensor("b", batch, f, k)
        out, bias = topi.nn.batch_matmul(x, y), tensor("bias", 1, m, f)
    else:
        raise UnknownName(f"no recipe for {kind!r}")
    tail = kind.partition("_n")[2].partition("_")[2]
    if tail.startswith("add_add"):
        residual = tensor("residual", *(int(extent) for extent in out.shape))
        tail, out = tail.removeprefix("add_"), topi.add(out, residual)
        return _finish(tail, out, (x, y, residual), bias)
    return _finish(tail, out, (x, y), bias)


def _finish(tail: str, out: Any, inputs: tuple[Any, ...], bias: Any) -> tuple[Any, ...]:
    """What follows the main operator: "", add, relu, clip, gelu, or several of them."""
    from tvm import topi

    if "add" in tail or "gelu" in tail:
        out, inputs = topi.add(out, bias), (*inputs, bias)
    if "relu" in tail:
        out = topi.nn.relu(out)
    if "gelu" in tail:
        out = _gelu(out)
    if "clip" in tail:
        out = topi.clip(out, 0.0, 6.0)
    return (*inputs, out)


def _gelu(x: Any) -> Any:
    from tvm import topi

    return topi.multiply(topi.multiply(x, 0.5), topi.add(topi.tanh(topi.multiply(x, 0.7978845608)), 1.0))
