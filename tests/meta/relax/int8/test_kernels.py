"""Eight-bit kernels compute numpy's int32 sums, rounded to even, with each kind of dot product."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from built import TARGET, run_kernel

from wmsched.relax.int8.depthwise import depthwise_kernel
from wmsched.relax.int8.dots import DOTS, Dot, dot_of, permutes_bytes
from wmsched.relax.int8.finish import Finish, Residual
from wmsched.relax.int8.geometry import Geometry, blocking
from wmsched.relax.int8.images import image_kernel, largest_kernel, mean_kernel
from wmsched.relax.int8.product import product_kernel
from wmsched.relax.int8.tables import codes_of, gate_kernel, table_kernel, values_of
from wmsched.relax.int8.weights import offsets, packed, packed_depthwise, padded_columns
from wmsched.toolchain.host_cpu import CPUINFO, read_cpuinfo

DRAWS = np.random.default_rng(0)
BEST = dot_of(TARGET)
NAMES = [dot.name for dot, _ in DOTS]
#: What this machine can run: its best kind, and all those after it whose instructions it has.
HERE = [
    dot
    for dot, needs in DOTS
    if BEST is not None
    and NAMES.index(dot.name) >= NAMES.index(BEST.name)
    and read_cpuinfo(CPUINFO)[1].issuperset(needs.values())
]
pytestmark = pytest.mark.skipif(not HERE, reason="this processor has no dot products of small integers")
VBMI = pytest.mark.skipif(not permutes_bytes(TARGET), reason="this processor does not permute bytes")
ROUNDED = Finish(low=-10, high=245, zero=10)


run = functools.partial(run_kernel, dtype=np.uint8)


def sums(shape: Geometry, data, weights, *, depthwise=False):
    """int64 sums of a convolution of the data less their zero point."""
    top, left, bottom, right = shape.padding
    padded = np.pad(data.astype(np.int64) - shape.zero, [(0, 0), (top, bottom), (left, right), (0, 0)])
    found = np.zeros((shape.batch, shape.out_height, shape.out_width, shape.outputs), np.int64)
    for ky in range(shape.kernel[0]):
        for kx in range(shape.kernel[1]):
            y, x = ky * shape.dilation[0], kx * shape.dilation[1]
            part = padded[
                :,
                y : y + (shape.out_height - 1) * shape.stride[0] + 1 : shape.stride[0],
                x : x + (shape.out_width - 1) * shape.stride[1] + 1 : shape.stride[1],
            ]
            tap = weights[:, ky, kx].astype(np.int64)
            found += part * tap[:, 0] if depthwise else part @ tap.T
    return found


def quantized(values, low, high, zero):
    return (np.clip(np.rint(values), low, high) + zero).astype(np.int64)


SHAPES = {
    "a window over edges, two images": Geometry(
        batch=2, height=9, width=11, channels=20, outputs=40, kernel=(3, 3), padding=(1, 1, 1, 1), zero=7
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
        zero=200,
    ),
    "a wide window of few channels": Geometry(
        batch=1, height=20, width=19, channels=3, outputs=24, kernel=(7, 7), padding=(3, 3, 3, 3), zero=114
    ),
    "three rows, a depth of no vector": Geometry(batch=1, height=3, width=1, channels=130, outputs=17),
    "columns shared by threads": Geometry(batch=1, height=7, width=7, channels=64, outputs=256, zero=3),
    "a window, columns shared by threads": Geometry(
        batch=1, height=5, width=5, channels=32, outputs=160, kernel=(3, 3), padding=(1, 1, 1, 1), zero=3
    ),
    "one row": Geometry(batch=1, height=1, width=1, channels=24, outputs=144, zero=255),
}


def drawn(shape: Geometry):
    """Data, weights, bias and factors."""
    data = DRAWS.integers(0, 256, (shape.batch, shape.height, shape.width, shape.channels)).astype(np.uint8)
    weights = DRAWS.integers(-128, 128, (shape.outputs, *shape.kernel, shape.channels)).astype(np.int8)
    bias = DRAWS.integers(-1000, 1000, shape.outputs).astype(np.int32)
    factor = DRAWS.uniform(0.5, 2, shape.outputs) * 40 / np.sqrt(shape.depth) / 128 / 128
    return data, weights, bias, factor.astype(np.float32)


def product(shape: Geometry, steps: Finish, dot: Dot, data, weights, bias, factor, *more, dtype=np.uint8):
    result = (shape.batch, shape.out_height, shape.out_width, shape.outputs)
    flat = weights.reshape(shape.outputs, -1)
    kernel = product_kernel(shape, steps, dot, 2, data.shape, result)
    given = [
        data,
        packed(flat, dot, blocking(shape, dot, 2).depth),
        padded_columns(bias + offsets(flat, shape.zero)),
        padded_columns(factor),
        *more,
    ]
    return run(kernel, *given, shape=result, dtype=dtype)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dot", HERE, ids=lambda dot: dot.name)
def test_a_product_is_that_of_whole_numbers(dot, name):
    shape = SHAPES[name]
    data, weights, bias, factor = drawn(shape)
    found = product(shape, ROUNDED, dot, data, weights, bias, factor)
    exact = (sums(shape, data, weights) + bias) * factor.astype(np.float64)
    wanted = quantized(exact, -10, 245, 10)
    tied = np.abs(np.abs(exact - np.trunc(exact)) - 0.5) < 1e-6 * np.abs(exact).max()
    assert (found == wanted)[~tied].all() and wanted.std() > 3 and tied.mean() < 0.02


@pytest.mark.parametrize("dot", HERE, ids=lambda dot: dot.name)
def test_sums_do_not_saturate(dot):
    shape = Geometry(batch=1, height=4, width=4, channels=256, outputs=16)
    data = np.full((1, 4, 4, 256), 255, np.uint8)
    weights = np.full((16, 1, 1, 256), -128, np.int8)
    nothing, one = np.zeros(16, np.int32), np.ones(16, np.float32)
    found = product(shape, Finish(quantized=False), dot, data, weights, nothing, one, dtype=np.float32)
    assert (found == -256 * 255 * 128).all()


@pytest.mark.parametrize("dot", HERE, ids=lambda dot: dot.name)
def test_bounds_shifts_and_residuals_follow(dot):
    shape = Geometry(batch=1, height=6, width=7, channels=24, outputs=40, zero=3)
    data, weights, bias, factor = drawn(shape)
    exact = (sums(shape, data, weights) + bias) * factor.astype(np.float64)
    shift = DRAWS.normal(0, 5, 40).astype(np.float32)

    steps = Finish(quantized=False, shifted=True, low=0.0, high=20.0)
    real = product(shape, steps, dot, data, weights, bias, factor, padded_columns(shift), dtype=np.float32)
    assert np.abs(real - np.clip(exact + shift, 0, 20)).max() < 1e-4

    more = DRAWS.integers(0, 256, exact.shape).astype(np.uint8)
    residual = Residual(own=0.7, other=0.4, constant=-30.0)
    steps = Finish(low=-10, high=245, residual=residual, last_low=-5, last_high=250, zero=5)
    found = product(shape, steps, dot, data, weights, bias, factor, more)
    inner = quantized(exact, -10, 245, 0)
    wanted = quantized(inner * 0.7 + more * 0.4 - 30, -5, 250, 5)
    assert np.abs(found - wanted).max() <= 1 and (found == wanted).mean() > 0.99


DEPTHWISE = {
    "edges": Geometry(
        batch=2, height=9, width=11, channels=21, outputs=21, kernel=(3, 3), padding=(1, 1, 1, 1), zero=7
    ),
    "steps and holes": Geometry(
        batch=1,
        height=9,
        width=8,
        channels=32,
        outputs=32,
        kernel=(5, 3),
        stride=(2, 2),
        padding=(2, 1, 2, 1),
        dilation=(1, 2),
        zero=9,
    ),
    "an image as small as the window": Geometry(
        batch=1, height=3, width=2, channels=16, outputs=16, kernel=(5, 5), padding=(2, 2, 2, 2), zero=9
    ),
}


@pytest.mark.parametrize("name", DEPTHWISE)
@pytest.mark.parametrize("dot", HERE, ids=lambda dot: dot.name)
def test_a_depthwise_convolution_is_that_of_whole_numbers(dot, name):
    shape = DEPTHWISE[name]
    data = DRAWS.integers(0, 256, (shape.batch, shape.height, shape.width, shape.channels)).astype(np.uint8)
    weights = DRAWS.integers(-128, 128, (shape.channels, *shape.kernel, 1)).astype(np.int8)
    bias = DRAWS.integers(-1000, 1000, shape.channels).astype(np.int32)
    factor = DRAWS.uniform(0.001, 0.002, shape.channels).astype(np.float32)
    flat, result = weights.reshape(shape.channels, -1), (shape.batch, shape.out_height, shape.out_width)
    found = run(
        depthwise_kernel(shape, ROUNDED, dot, data.shape, (*result, shape.channels)),
        data,
        packed_depthwise(flat, shape.kernel, dot),
        padded_columns(bias + offsets(flat, shape.zero)),
        padded_columns(factor),
        shape=(*result, shape.channels),
    )
    exact = (sums(shape, data, weights, depthwise=True) + bias) * factor.astype(np.float64)
    wanted = quantized(exact, -10, 245, 10)
    assert np.abs(found - wanted).max() <= 1 and (found == wanted).mean() > 0.999 and wanted.std() > 3


def test_an_image_is_quantized_to_even_with_its_channels_last():
    data = np.concatenate([DRAWS.normal(0, 3, 333), np.arange(-13.5, 13.5)]).astype(np.float32)
    data = data.reshape(2, 3, 4, 15)
    found = run(image_kernel(data.shape, 0.5, 3), data, shape=(2, 4, 15, 3))
    wanted = np.clip(np.rint(data / np.float32(0.5)) + 3, 0, 255).astype(np.uint8)
    assert (found == wanted.transpose(0, 2, 3, 1)).all()


def test_the_largest_of_a_window():
    data = DRAWS.integers(0, 256, (2, 12, 11, 70)).astype(np.uint8)
    shape = Geometry(
        batch=2,
        height=12,
        width=11,
        channels=70,
        outputs=70,
        kernel=(3, 3),
        stride=(2, 2),
        padding=(1, 1, 1, 1),
    )
    result = (2, shape.out_height, shape.out_width, 70)
    found = run(largest_kernel(shape, data.shape, result), data, shape=result)
    padded = np.pad(data, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    assert (found == windows.max(axis=(-2, -1))).all()


@pytest.mark.parametrize("channels", [5, 40, 64])
def test_the_mean_of_an_image(channels):
    data = DRAWS.integers(0, 256, (2, 7, 5, channels)).astype(np.uint8)
    kernel = mean_kernel(35, Finish(low=-4, high=251, zero=4), data.shape, (2, channels), (-35 * 3, 1.3 / 35))
    found = run(kernel, data, shape=(2, channels))
    wanted = quantized((data.astype(np.int64).sum((1, 2)) - 105) * 1.3 / 35, -4, 251, 4)
    assert np.abs(found - wanted).max() <= 1 and (found == wanted).mean() > 0.95


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("permuted", [False, pytest.param(True, marks=VBMI)])
@pytest.mark.parametrize("shape", [(1, 3, 7, 5), (2, 64), (1, 70, 70, 2)])
def test_a_table_is_looked_up(shape, permuted, dtype):
    data, table = DRAWS.integers(0, 256, shape).astype(np.uint8), DRAWS.integers(0, 256, 256).astype(dtype)
    found = run(table_kernel(shape, dtype, permuted), data, table, shape=shape, dtype=dtype)
    assert (found == table[data]).all()


@pytest.mark.parametrize("channels", [5, 40])
def test_a_gate_scales_channels(channels):
    data = DRAWS.integers(0, 256, (2, 3, 4, channels)).astype(np.uint8)
    gate = DRAWS.normal(0, 2, (2, 1, 1, channels)).astype(np.float32)
    found = run(gate_kernel(data.shape, 7, 0.37, 11), data, gate, shape=data.shape)
    wanted = quantized((data.astype(np.float64) - 7) * gate * 0.37, -11, 244, 11)
    assert np.abs(found - wanted).max() <= 1 and (found == wanted).mean() > 0.99 and wanted.std() > 3


def test_codes_are_rounded_to_even_and_bounded():
    values = values_of("relax.multiply", None, [np.arange(256, dtype=np.float32) - 100, 0.5])
    codes = codes_of(values, 1.0, 3)
    assert list(codes[98:105]) == [2, 3, 3, 3, 4, 5, 5] and codes[0] == 0 and codes[-1] == 81
    assert values_of("relax.sqrt", None, [values]) is None  # of numbers below zero
    assert values_of("relax.nn.softmax", None, [values]) is None


def test_a_target_without_vectors_has_none():
    assert dot_of(tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})) is None
    assert dot_of(tvm.target.Target("cuda")) is None


def test_kinds_go_by_the_targets_instructions():
    def named(cpu):
        found = dot_of(tvm.target.Target({"kind": "llvm", "mcpu": cpu, "mtriple": "x86_64-linux-gnu"}))
        return None if found is None else found.name

    assert named("haswell") == "avx2-madd" and named("skylake-avx512") == "avx512-madd"
    assert named("cascadelake") == "avx512-vnni" and named("alderlake") == "avx-vnni"
