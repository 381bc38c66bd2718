"""Programs beside the products of `kinds`: reductions, sums in parts, a chain, an epilogue, a softmax.

Their schedules are of all spaces that a GPU has, those of `wmsched.metaschedule.rules` among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.kinds import KINDS, SMALL, Kind

__all__ = ["EVERY", "EVERY_SMALL", "PROGRAMS", "SMALL_PROGRAMS", "Program"]

WIDE = "float32"  # of sums
EPSILON = 1e-5  # of a layer norm
SCALE = 0.125  # of an attention's scores, for heads of 64

Made = tuple[list[Any], Any]  # operands and result, in TVM's tensor expressions


@dataclass(frozen=True, kw_only=True)
class Program:
    """Program that is no plain product.

    Parameters
    ----------
    name : str
    shape : tuple of int
        As `make` takes it.
    make : callable (program) -> operands and result
        In TVM's tensor expressions.
    reference : callable (arrays) -> array
        The same in numpy, of float32.
    dtype, out : str
        Of operands and of the output.
    """

    name: str
    shape: tuple[int, ...]
    make: Callable[[Program], Made]
    reference: Callable[..., Any]
    dtype: str = WIDE
    out: str = WIDE

    def function(self) -> Any:
        """Return the TensorIR function."""
        from tvm import te

        operands, result = self.make(self)
        return te.create_prim_func([*operands, result])


def _placeholder(name: str, shape: Sequence[int], dtype: str) -> Any:
    from tvm import te

    return te.placeholder(tuple(shape), dtype, name)


def _sum(shape: Sequence[int], terms: int, term: Callable[..., Any], name: str) -> Any:
    from tvm import te

    r = te.reduce_axis((0, terms), f"r{name}")
    return te.compute(tuple(shape), lambda *at: te.sum(term(*at, r).astype(WIDE), axis=r), name=name)


def _result(shape: Sequence[int], element: Callable[..., Any], dtype: str) -> Any:
    from tvm import te

    return te.compute(tuple(shape), lambda *at: element(*at).astype(dtype), name="D")


def _softmax_of(x: Any) -> Any:
    from tvm import topi

    return topi.nn.softmax(x, axis=-1)


def _softmax(program: Program) -> Made:
    x = _placeholder("A", program.shape, program.dtype)
    return [x], _softmax_of(x)


def _layer_norm(program: Program) -> Made:
    from tvm import te

    rows, width = program.shape
    x = _placeholder("A", program.shape, program.dtype)
    gamma, beta = (_placeholder(name, (width,), program.dtype) for name in ("B", "E"))
    mean = _sum((rows,), width, lambda i, r: x[i, r], "S")
    square = _sum((rows,), width, lambda i, r: x[i, r] * x[i, r], "Q")

    def element(i: Any, j: Any) -> Any:
        middle = mean[i] / float(width)
        variance = square[i] / float(width) - middle * middle
        return (x[i, j] - middle) * te.rsqrt(variance + EPSILON) * gamma[j] + beta[j]

    return [x, gamma, beta], _result(program.shape, element, program.out)


def _average(program: Program) -> Made:
    from tvm import topi

    x = _placeholder("A", program.shape, program.dtype)
    return [x], topi.nn.global_pool(x, "avg", "NCHW")


def _dense(program: Program) -> Made:
    rows, out, terms = program.shape
    x, w = (_placeholder(name, (n, terms), program.dtype) for name, n in (("A", rows), ("B", out)))
    total = _sum((rows, out), terms, lambda i, j, r: x[i, r].astype(WIDE) * w[j, r].astype(WIDE), "C")
    return [x, w], total


def _gelu(x: Any) -> Any:
    from tvm import te

    return x * 0.5 * (1.0 + te.erf(x * math.sqrt(0.5)))


def _dense_gelu(program: Program) -> Made:
    """A dense layer with bias and GELU in one kernel: the output has two operands that read the sums."""
    rows, out, _ = program.shape
    operands, total = _dense(program)
    bias = _placeholder("E", (out,), program.dtype)
    element = _result((rows, out), lambda i, j: _gelu(total[i, j] + bias[j].astype(WIDE)), program.out)
    return [*operands, bias], element


def _chain(program: Program) -> Made:
    """Scale, shift, ReLU, residual: elementwise operators that become one kernel, with a change of layout."""
    from tvm import te, topi

    rows, columns = program.shape
    x, residual = (
        _placeholder("A", (columns, rows), program.dtype),
        _placeholder("B", program.shape, program.dtype),
    )
    scale, shift = (_placeholder(name, (columns,), program.dtype) for name in ("E", "F"))
    turned = topi.transpose(x)
    moved = te.compute(program.shape, lambda i, j: turned[i, j] * scale[j] + shift[j], name="moved")
    kept = topi.nn.relu(moved)
    return [x, residual, scale, shift], _result(
        program.shape, lambda i, j: kept[i, j] + residual[i, j], program.out
    )


def _shares(program: Program) -> Made:
    """Softmax of an attention between its two products: scaled float32 scores in, half floats out."""
    from tvm import te

    x = _placeholder("A", program.shape, program.dtype)
    scaled = te.compute(program.shape, lambda *at: x(*at) * SCALE, name="scaled")
    return [x], _result(program.shape, _softmax_of(scaled), program.out)


def _softmax_np(x: Any) -> Any:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def _layer_norm_np(x: Any, gamma: Any, beta: Any) -> Any:
    middle = x - x.mean(-1, keepdims=True)
    return middle / np.sqrt((middle**2).mean(-1, keepdims=True) + EPSILON) * gamma + beta


def _gelu_np(x: Any, w: Any, bias: Any) -> Any:
    from scipy.special import erf

    total = x @ w.T + bias
    return total * 0.5 * (1.0 + erf(total * math.sqrt(0.5)))


def _programs(*, small: bool) -> tuple[Program, ...]:
    def of(large: tuple[int, ...], less: tuple[int, ...]) -> tuple[int, ...]:
        return less if small else large

    def dense(name: str, large: tuple[int, ...], less: tuple[int, ...], **types: str) -> Program:
        return Program(name=name, shape=of(large, less), make=_dense, reference=lambda x, w: x @ w.T, **types)

    half = {"dtype": "float16", "out": "float16"}
    return (
        Program(name="softmax", shape=of((1536, 128), (12, 40)), make=_softmax, reference=_softmax_np),
        Program(name="layer-norm", shape=of((128, 768), (8, 96)), make=_layer_norm, reference=_layer_norm_np),
        Program(
            name="average",
            shape=of((1, 2048, 7, 7), (1, 24, 7, 7)),
            make=_average,
            reference=lambda x: x.mean((2, 3), keepdims=True),
        ),
        dense("row", (1, 1000, 2048), (1, 24, 256)),
        dense("row-fp16", (1, 1000, 2048), (1, 24, 256), dtype="float16"),
        dense("few-rows", (8, 1024, 2816), (8, 48, 256)),
        Program(
            name="chain",
            shape=of((784, 256), (28, 24)),
            make=_chain,
            reference=lambda x, y, a, b: np.maximum(x.T * a + b, 0) + y,
        ),
        Program(
            name="dense-gelu",
            shape=of((128, 3072, 768), (32, 64, 64)),
            make=_dense_gelu,
            reference=_gelu_np,
            **half,
        ),
        Program(
            name="attention-shares",
            shape=of((12, 128, 128), (2, 24, 32)),
            make=_shares,
            reference=lambda x: _softmax_np(x * SCALE),
            out="float16",
        ),
    )


PROGRAMS = _programs(small=False)
#: The same programs, small enough for a processor that plays a GPU.
SMALL_PROGRAMS = _programs(small=True)

#: Products and programs.
EVERY: tuple[Kind | Program, ...] = (*KINDS, *PROGRAMS)
EVERY_SMALL: tuple[Kind | Program, ...] = (*SMALL, *SMALL_PROGRAMS)
