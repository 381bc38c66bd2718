"""bfloat16 kernels compute products of operands rounded to even, with each kind of dot product."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import tvm
from built import TARGET, run_kernel
from plain_bfloat16 import PLAIN

from wmsched.relax.bf16.batched import batched_kernel
from wmsched.relax.bf16.dots import BFLOAT16_DOTS, bfloat16_dot, bits_of
from wmsched.relax.int8.finish import RealFinish
from wmsched.relax.int8.geometry import Geometry, blocking
from wmsched.relax.int8.product import product_kernel
from wmsched.relax.int8.weights import packed, padded_columns

DRAWS = np.random.default_rng(0)
BEST = bfloat16_dot(TARGET)
NAMES = [dot.name for dot, _ in BFLOAT16_DOTS]
#: Of AMX and vectors those that this processor has, and what all processors have.
KINDS = [
    pytest.param(
        dot,
        id=dot.name,
        marks=pytest.mark.skipif(
            BEST is None or NAMES.index(dot.name) < NAMES.index(BEST.name),
            reason=f"this processor has no {dot.name}",
        ),
    )
    for dot, _ in BFLOAT16_DOTS
] + [pytest.param(PLAIN, id="plain")]


def real(bits):
    """float32 numbers of the bits of bfloat16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


run = functools.partial(run_kernel, dtype=np.float32)


def product(shape: Geometry, steps: RealFinish, dot, data, weights, bias, *more):
    """What the kernel computes; `data` are float32, or bits of bfloat16."""
    result = (shape.batch, shape.out_height, shape.out_width, shape.outputs)
    given = str(data.dtype)
    kernel = product_kernel(shape, steps, dot, 2, data.shape, result, given)
    depth = blocking(shape, dot, 2, given).depth
    flat = bits_of(weights.reshape(shape.outputs, -1))
    dtype = np.uint16 if steps.rounded else np.float32
    arguments = [data, packed(flat, dot, depth), padded_columns(bias), *more]
    return run(kernel, *arguments, shape=result, dtype=dtype)


def wanted(shape: Geometry, data, weights, bias):
    """PyTorch's convolution of the rounded operands, in float64."""
    left, right = (torch.from_numpy(real(bits_of(each))).double() for each in (data, weights))
    top, first, bottom, last = shape.padding
    padded = torch.nn.functional.pad(left.permute(0, 3, 1, 2), (first, last, top, bottom))
    found = torch.nn.functional.conv2d(
        padded,
        right.permute(0, 3, 1, 2),
        torch.from_numpy(bias).double(),
        stride=shape.stride,
        dilation=shape.dilation,
    )
    return found.permute(0, 2, 3, 1).numpy()


def drawn(shape: Geometry):
    """Data, weights and bias."""
    data = DRAWS.normal(size=(shape.batch, shape.height, shape.width, shape.channels)).astype(np.float32)
    weights = DRAWS.normal(size=(shape.outputs, *shape.kernel, shape.channels)).astype(np.float32)
    return data, weights, DRAWS.normal(size=shape.outputs).astype(np.float32)


SHAPES = {
    "a window over edges, two images": Geometry(
        batch=2, height=9, width=11, channels=20, outputs=40, kernel=(3, 3), padding=(1, 1, 1, 1)
    ),
    "steps, holes, few channels": Geometry(
        batch=1,
        height=15,
        width=14,
        channels=3,
        outputs=32,
        kernel=(5, 3),
        stride=(2, 2),
        padding=(0, 1, 2, 1),
        dilation=(1, 2),
    ),
    "three rows, a depth of no vector": Geometry(batch=1, height=3, width=1, channels=131, outputs=17),
    "columns shared by threads": Geometry(batch=1, height=7, width=7, channels=64, outputs=256),
    "one row": Geometry(batch=1, height=1, width=1, channels=24, outputs=144),
    "more weights than are near": Geometry(batch=1, height=49, width=1, channels=1040, outputs=544),
}


def check(dot, shape, *, rounded=False):
    data, weights, bias = drawn(shape)
    exact = wanted(shape, data, weights, bias)
    found = product(shape, RealFinish(), dot, bits_of(data) if rounded else data, weights, bias)
    assert np.abs(found - exact).max() < 3e-6 * np.abs(exact).max() and exact.std() > 1


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "dot", [KINDS[0], pytest.param(*KINDS[1].values, marks=[*KINDS[1].marks, pytest.mark.slow])]
)
def test_a_product_is_that_of_the_rounded_operands(dot, name):
    check(dot, SHAPES[name])


@pytest.mark.parametrize("dot", KINDS[1:])
@pytest.mark.parametrize("name", list(SHAPES)[1:3])
def test_so_it_is_in_vectors(dot, name):
    check(dot, SHAPES[name])


@pytest.mark.parametrize("name", [list(SHAPES)[k] for k in (0, 3)])
@pytest.mark.parametrize("dot", [KINDS[0], KINDS[-1]])
def test_data_may_be_rounded_already(dot, name):
    check(dot, SHAPES[name], rounded=True)


def test_weights_that_are_not_near_are_read_once():
    amx = BFLOAT16_DOTS[0][0]
    assert blocking(SHAPES["more weights than are near"], amx, 2).held
    assert not blocking(SHAPES["columns shared by threads"], amx, 2).held


@pytest.mark.parametrize("dot", KINDS[::2])
def test_bounds_a_residual_and_rounding_follow(dot):
    shape = SHAPES["columns shared by threads"]
    data, weights, bias = drawn(shape)
    exact = wanted(shape, data, weights, bias)
    more = DRAWS.normal(size=exact.shape).astype(np.float32) * 10
    steps = RealFinish(low=-5.0, high=20.0, residual=True, last_low=0.0, last_high=25.0)
    found = product(shape, steps, dot, data, weights, bias, more)
    assert np.abs(found - np.clip(np.clip(exact, -5, 20) + more, 0, 25)).max() < 1e-4
    whole = product(shape, RealFinish(low=0.0), dot, data, weights, bias)
    assert (
        product(shape, RealFinish(low=0.0, rounded=True), dot, data, weights, bias) == bits_of(whole)
    ).all()


@pytest.mark.parametrize("dot", KINDS)
def test_what_is_beside_a_row_does_not_reach_its_sums(dot):
    shape = Geometry(batch=1, height=40, width=1, channels=37, outputs=32)
    data, weights, bias = drawn(shape)
    data[0, ::2] = np.inf
    for _ in range(2):  # scratch memory that held infinity before
        found = product(shape, RealFinish(), dot, data, weights, bias)
        assert np.isfinite(found[0, 1::2]).all() and not np.isfinite(found[0, ::2]).any()


@pytest.mark.parametrize("dot", KINDS)
def test_rounding_is_pytorch_s(dot):
    shape = Geometry(batch=1, height=1, width=1, channels=32, outputs=16)
    weights = np.zeros((16, 1, 1, 32), np.float32)
    weights[np.arange(16), 0, 0, np.arange(16)] = 1
    ties = 1 + np.arange(1, 32, 2, dtype=np.float32) / 256  # between two neighbours of bfloat16
    data = np.zeros((1, 1, 1, 32), np.float32)
    data[0, 0, 0, :16] = ties
    expected = torch.from_numpy(ties).bfloat16().float().numpy()
    assert (real(bits_of(ties)) == expected).all() and len(set(expected - ties)) == 2
    found = product(shape, RealFinish(), dot, data, weights, np.zeros(16, np.float32))
    assert (found.reshape(-1) == expected).all()


def test_bits_of_no_number_and_of_infinity():
    assert np.isnan(real(bits_of(np.array([np.nan], np.float32)))).all()
    given = np.array([np.inf, -np.inf, 3.4e38, -0.0], np.float32)
    expected = torch.from_numpy(given).bfloat16().float().numpy()
    assert (real(bits_of(given)) == expected).all() and np.signbit(real(bits_of(given))[3])


def test_kinds_go_by_the_targets_instructions():
    def named(cpu):
        target = {"kind": "llvm", "mcpu": cpu, "mtriple": "x86_64-linux-gnu"}
        found = bfloat16_dot(tvm.target.Target(target))
        return None if found is None else found.name

    assert named("haswell") is None and named("cascadelake") is None
    assert named("cooperlake") == named("znver4") == "avx512-bf16"
    assert bfloat16_dot(tvm.target.Target("cuda")) is None


@pytest.mark.parametrize("extents", [(32, 64, 48), (37, 45, 41)], ids=["whole", "odd"])
@pytest.mark.parametrize("dot", KINDS[::2])
def test_products_of_computed_matrices(dot, extents):
    rows, depth, outputs = extents
    shape = Geometry(batch=1, height=rows, width=1, channels=depth, outputs=outputs)
    left, right = (DRAWS.normal(size=(2, 3, *each)).astype(np.float32) for each in (extents[:2], extents[1:]))
    result = (2, 3, rows, outputs)
    found = run(batched_kernel(6, shape, dot, (left.shape, right.shape), result), left, right, shape=result)
    exact = real(bits_of(left)).astype(np.float64) @ real(bits_of(right)).astype(np.float64)
    assert np.abs(found - exact).max() < 3e-6 * np.abs(exact).max() and exact.std() > 1
