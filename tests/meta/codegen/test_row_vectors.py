"""Vector loops that cross the ends of rows are split into vectors within rows; the numbers stay the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule

from wmsched.codegen import pipeline, register
from wmsched.codegen.row_vectors import in_rows
from wmsched.toolchain.targets import meta_host_target

ROWS = (144, 96, 40, 24, 672, 100)  # channels; fused with 49 pixels the last has a bound, as 672 has


def gate(channels: int, pixels: int = 49):
    x = te.placeholder((1, pixels, channels), "float32", name="x")
    gates = te.placeholder((1, 1, channels), "float32", name="gates")
    schedule = Schedule(te.create_prim_func([x, gates, topi.multiply(x, gates)]))
    outer, inner = schedule.split(schedule.fuse(*schedule.get_loops("T_multiply")), [None, 64])
    schedule.parallel(outer)
    schedule.vectorize(inner)
    return schedule.mod


def compiled(mod, monkeypatch, *, split: bool):
    seen = []
    steps = [step for step in pipeline.STEPS if step[0] is not in_rows]

    def kept(function):
        seen.append(in_rows(function))
        return seen[-1] if split else function

    monkeypatch.setattr(pipeline, "STEPS", [(kept, "rows"), *steps])
    with tvm.transform.PassContext(config=register.CONFIG):
        return tvm.compile(mod, target=tvm.target.Target(meta_host_target())), seen[0]


def lengths(tir) -> list[int]:
    """Of the vector loops of a function."""
    return [int(found) for found in re.findall(r"T\.vectorized\((\d+)\)", str(tir))]


def run(executable, channels: int, pixels: int = 49) -> np.ndarray:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((1, pixels, channels)).astype(np.float32)
    gates = rng.standard_normal((1, 1, channels)).astype(np.float32)
    out = tvm.runtime.tensor(np.zeros_like(x))
    executable["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(gates), out)
    np.testing.assert_array_equal(out.numpy(), x * gates)
    return out.numpy()


@pytest.mark.parametrize("channels", ROWS)
def test_rows_of_no_multiple_of_a_vector_are_run_in_vectors_within_them(channels, monkeypatch) -> None:
    mod = gate(channels)
    (ours, tir), (theirs, _) = (compiled(mod, monkeypatch, split=split) for split in (True, False))
    lanes = np.gcd.reduce([64, channels, *([49 * channels] if 49 * channels % 64 else [])])
    assert lengths(tir) == [lanes]
    np.testing.assert_array_equal(run(ours, channels), run(theirs, channels))


@pytest.mark.parametrize("channels", [64, 128, 3, 5])
def test_rows_that_vectors_fit_and_those_that_no_vector_fits_stay(channels, monkeypatch) -> None:
    executable, tir = compiled(gate(channels, 64), monkeypatch, split=True)
    assert lengths(tir) == [64]
    run(executable, channels, 64)


def test_a_shorter_pattern_within_a_vector_stays(monkeypatch) -> None:
    """Upsampling by two reads each number twice: a shuffle, whatever the row."""
    x = te.placeholder((49, 48), "float32", name="x")
    twice = te.compute((49, 96), lambda i, j: x[i, j // 2] + te.const(1.0, "float32"), name="twice")
    schedule = Schedule(te.create_prim_func([x, twice]))
    _, inner = schedule.split(schedule.fuse(*schedule.get_loops("twice")), [None, 32])
    schedule.vectorize(inner)
    executable, tir = compiled(schedule.mod, monkeypatch, split=True)
    assert lengths(tir) == [32]
    given = np.random.default_rng(1).standard_normal((49, 48)).astype(np.float32)
    out = tvm.runtime.tensor(np.zeros((49, 96), np.float32))
    executable["main"](tvm.runtime.tensor(given), out)
    np.testing.assert_array_equal(out.numpy(), np.repeat(given, 2, axis=1) + 1)


def test_the_tensors_of_a_concatenation_are_told_apart_by_vectors(monkeypatch) -> None:
    """In rows of 144 channels, of which 48 are from the first tensor: one comparison for 16 lanes."""
    shapes = ((1, 49, 48), (1, 49, 96))
    sources = [te.placeholder(shape, "float32", name=f"x{k}") for k, shape in enumerate(shapes)]
    schedule = Schedule(te.create_prim_func([*sources, topi.concatenate(sources, axis=2)]))
    fused = schedule.fuse(*schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0]))
    _, inner = schedule.split(fused, [None, 64])
    schedule.vectorize(inner)
    executable, tir = compiled(schedule.mod, monkeypatch, split=True)
    assert lengths(tir) == [16]
    chosen = re.search(r"if_then_else\(([^,]*),", str(tir))
    assert chosen is not None and "lane" not in chosen.group(1)
    rng = np.random.default_rng(2)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    out = tvm.runtime.tensor(np.zeros((1, 49, 144), np.float32))
    executable["main"](*map(tvm.runtime.tensor, given), out)
    np.testing.assert_array_equal(out.numpy(), np.concatenate(given, axis=2))


@pytest.mark.parametrize("channels", [24, 144, 6])
def test_the_border_of_an_image_is_found_by_vectors(channels, monkeypatch) -> None:
    x = te.placeholder((1, 7, 7, channels), "float32", name="x")
    padded = topi.nn.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), name="padded")
    schedule = Schedule(te.create_prim_func([x, padded]))
    _, inner = schedule.split(schedule.fuse(*schedule.get_loops("padded")), [None, 64])
    schedule.vectorize(inner)
    executable, tir = compiled(schedule.mod, monkeypatch, split=True)
    lanes = np.gcd.reduce([64, channels, 81 * channels])
    assert lengths(tir) == [lanes if lanes >= 4 else 64]
    given = np.random.default_rng(3).standard_normal((1, 7, 7, channels)).astype(np.float32)
    out = tvm.runtime.tensor(np.zeros((1, 9, 9, channels), np.float32))
    executable["main"](tvm.runtime.tensor(given), out)
    np.testing.assert_array_equal(out.numpy(), np.pad(given, ((0, 0), (1, 1), (1, 1), (0, 0))))
