"""Training programs for MetaSchedule: operators of common networks, in shapes that no benchmark task has.

Each is a recipe of a few numbers, built with TVM's operator library when it is needed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmsched.errors import DatasetError, UnknownName

#: (network, kind, shape). Networks group what resembles each other: training evaluates by them.
RECIPES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    # conv2d: batch, channels, height, width, filters, kernel, stride, padding
    ("vgg", "conv2d_relu", (1, 48, 40, 40, 96, 3, 1, 1)),
    ("vgg", "conv2d_relu", (1, 96, 20, 20, 192, 3, 1, 1)),
    ("vgg", "conv2d_relu", (1, 3, 96, 96, 48, 3, 1, 1)),
    ("squeezenet", "conv2d_relu", (1, 48, 27, 27, 192, 1, 1, 0)),
    ("squeezenet", "conv2d", (1, 384, 13, 13, 48, 1, 1, 0)),
    ("squeezenet", "conv2d_add", (1, 96, 26, 26, 24, 1, 1, 0)),
    ("inception", "conv2d_add_relu", (1, 192, 17, 17, 160, 1, 1, 0)),
    ("inception", "conv2d_relu", (1, 80, 35, 35, 96, 3, 2, 0)),
    ("inception", "conv2d_relu", (1, 32, 74, 74, 80, 3, 1, 1)),
    ("wide", "conv2d_relu", (1, 3, 160, 160, 40, 7, 2, 3)),
    ("wide", "conv2d_add", (1, 160, 16, 16, 320, 1, 2, 0)),
    ("wide", "conv2d_add_relu", (1, 320, 10, 10, 320, 3, 1, 1)),
    ("nhwc", "conv2d_nhwc_relu", (1, 40, 30, 30, 80, 3, 1, 1)),
    ("nhwc", "conv2d_nhwc_relu", (1, 120, 15, 15, 60, 1, 1, 0)),
    ("nhwc", "conv2d_nhwc_relu", (1, 24, 60, 60, 48, 3, 2, 1)),
    # depthwise: batch, channels, height, width, kernel, stride, padding
    ("shufflenet", "depthwise", (1, 120, 28, 28, 3, 1, 1)),
    ("shufflenet", "depthwise_relu", (1, 240, 14, 14, 3, 2, 1)),
    ("efficientnet", "depthwise_relu", (1, 72, 40, 40, 5, 1, 2)),
    ("efficientnet", "depthwise", (1, 480, 10, 10, 5, 1, 2)),
    # conv3d: batch, channels, depth, height, width, filters, kernel, stride, padding
    ("video", "conv3d", (1, 24, 8, 20, 20, 48, 3, 1, 1)),
    ("video", "conv3d_relu", (1, 48, 4, 14, 14, 96, 3, 1, 1)),
    ("video", "conv3d_relu", (1, 3, 12, 48, 48, 24, 3, 2, 1)),
    # dense: rows, in, out; batch_matmul: batch, m, n, k
    ("bert-small", "dense", (96, 512, 512)),
    ("bert-small", "dense_add", (96, 512, 1536)),
    ("bert-small", "dense_gelu", (96, 384, 1280)),
    ("mlp", "dense_add", (1, 1536, 640)),
    ("mlp", "dense_relu", (32, 320, 480)),
    ("mlp", "dense", (200, 200, 200)),
    ("vit", "batch_matmul", (6, 197, 197, 64)),
    ("vit", "batch_matmul", (6, 197, 64, 197)),
    ("vit", "batch_matmul_scale", (8, 96, 96, 48)),
    ("vit", "batch_matmul", (4, 160, 80, 160)),
    # rows of a matrix
    ("vit", "softmax", (6 * 197, 197)),
    ("bert-small", "softmax", (8 * 96, 96)),
    ("bert-small", "layer_norm", (96, 512)),
    ("vit", "layer_norm", (197, 384)),
    ("mlp", "mean", (200, 640)),
    # pooling: batch, channels, height, width, kernel, stride, padding
    ("squeezenet", "max_pool", (1, 96, 54, 54, 3, 2, 0)),
    ("inception", "max_pool", (1, 192, 36, 36, 3, 2, 1)),
    ("inception", "avg_pool", (1, 160, 17, 17, 3, 1, 1)),
    ("efficientnet", "global_pool", (1, 640, 10, 10)),
    ("mlp", "add_gelu", (96, 1536)),
)


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
        data = Path(source).read_bytes()
        rows = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return [
            Program(str(row.get("network", "")), str(row.get("desc", "")), None, _text(row["module"]))
            for row in rows
        ]
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError) as error:
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
    if kind.startswith("conv2d_nhwc"):
        n, c, h, w, f, k, stride, pad = s
        x, y = tensor("data", n, h, w, c), tensor("weight", k, k, c, f)
        return x, y, topi.nn.relu(topi.nn.conv2d_nhwc(x, y, stride, pad, 1))
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
    if kind == "mean":
        x = tensor("data", *s)
        return x, topi.divide(topi.sum(x, axis=-1, keepdims=True), float(s[-1]))
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


def _finish(tail: str, out: Any, inputs: tuple[Any, ...], bias: Any) -> tuple[Any, ...]:
    """What follows the main operator: "", add, relu, gelu, or several of them."""
    from tvm import topi

    if "add" in tail or "gelu" in tail:
        out, inputs = topi.add(out, bias), (*inputs, bias)
    if "relu" in tail:
        out = topi.nn.relu(out)
    if "gelu" in tail:
        out = _gelu(out)
    return (*inputs, out)


def _gelu(x: Any) -> Any:
    from tvm import topi

    return topi.multiply(topi.multiply(x, 0.5), topi.add(topi.tanh(topi.multiply(x, 0.7978845608)), 1.0))
