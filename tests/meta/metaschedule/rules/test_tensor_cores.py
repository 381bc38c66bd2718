"""Tensor-core schedules of half floats: what CUDA they become, that NVRTC takes it, and what it computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm.s_tir import Schedule

from benchmarks.gpu.compile_kinds import BOARDS, context_of, drawn, is_tensor_core, source_of
from benchmarks.gpu.cubins import cubin, resources, supported
from benchmarks.gpu.kinds import SMALL, Kind
from benchmarks.gpu.right_kinds import MOST, SOURCE, off_by
from wmsched.base.errors import EnvironmentProblem
from wmsched.codegen.tf32 import completed, rounded
from wmsched.metaschedule.rules.tensor_cores import MAX_REGISTERS, Product, registers_of

DENSE, TF32 = SMALL[0], next(kind for kind in SMALL if kind.name == "dense-tf32")


def schedules_of(kind, arch):
    """A schedule of each tensor-core space of a kind."""
    context, designs = context_of(kind, BOARDS[arch])
    for design in filter(is_tensor_core, designs):
        found = next(filter(None, (drawn(context, design, seed) for seed in range(1, 100))))
        yield found, context.target


def check_numbers(kind, schedule, target, folder) -> str:
    """Run a schedule's CUDA source on the processor and compare; returns the source."""
    how, off = off_by(kind, schedule, target, folder=folder)
    assert how == SOURCE and off <= MOST[kind.out]
    return source_of(schedule, target)[0]


def test_half_floats_in_and_floats_added_up_and_half_floats_out(tmp_path) -> None:
    """The very source that NVRTC gets computes the product, with copies that run ahead of it."""
    *_, (schedule, target) = schedules_of(DENSE, "sm_80")
    source = check_numbers(DENSE, schedule, target, tmp_path)
    assert "nvcuda::wmma::mma_sync" in source and "cp_async" in source


def _fresh(tmp_path, number):
    """A folder of its own: a process loads a library of one path once."""
    folder = tmp_path / str(number)
    folder.mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL, ids=lambda kind: kind.name)
def test_every_kind_computes_its_product(kind, tmp_path) -> None:
    """With copies ahead of the product into two and three sets of shared memory, and without."""
    sources = [
        check_numbers(kind, schedule, target, _fresh(tmp_path, k))
        for k, (schedule, target) in enumerate(schedules_of(kind, "sm_80"))
    ]
    assert len(sources) == 3 and sum("commit_group" in source for source in sources) == 2


@pytest.mark.slow
@pytest.mark.parametrize("arch", BOARDS)
def test_nvrtc_takes_them_within_the_limits_of_every_architecture(arch) -> None:
    """Needs NVRTC, and no GPU."""
    try:
        known = supported()
    except EnvironmentProblem as error:
        pytest.skip(str(error))
    if arch not in known:
        pytest.skip(f"this NVRTC does not know {arch}")
    for kind in (*SMALL[:2], TF32):
        made = list(schedules_of(kind, arch))
        assert len(made) == (
            0 if arch == "sm_75" and kind.dtype != "float16" else 1 if arch == "sm_75" else 3
        )
        for schedule, target in made:
            source, shared = source_of(schedule, target)
            (kernel,) = resources(cubin(source, arch)).values()
            assert 0 < kernel.registers <= MAX_REGISTERS and kernel.stack == 0
            assert 0 < shared <= int(target.attrs["max_shared_memory_per_block"])


def test_tf32_has_its_type_and_rounds_what_it_loads() -> None:
    """And a source without it stays as it is."""
    matrix = "nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, {}, {}, nvcuda::wmma::row_major> a[1];"
    load = "nvcuda::wmma::load_matrix_sync(a[0], p, 24);"
    source = '#include <mma.h>\nextern "C" __global__ void main_kernel() {{ {} {} }}'
    half = source.format(matrix.format(16, "half"), load)
    assert completed(half) == half
    found = completed(source.format(matrix.format(8, "half"), load))
    assert "16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::row_major>" in found
    assert "wmsched_load_tf32(a[0], p, 24);" in found and found.index("#include") < found.index(
        "__float_to_tf32"
    )
    assert found.index("__float_to_tf32") < found.index('extern "C"')
    ties = np.float32([1 + 2**-11, -1 - 2**-11, 1 + 2**-12, 3.0])
    assert rounded(ties).tolist() == [1 + 2**-10, -1 - 2**-10, 1.0, 3.0]


def test_only_products_of_half_floats_with_float32_sums_are_taken() -> None:
    def product_of(kind):
        schedule = Schedule(kind.function())
        return Product.of(schedule, schedule.get_sblock("C"))

    plain = Kind(name="plain", shape=(1, 16, 32, 48), out="float32")
    assert product_of(plain) == Product("float16", transposed=False, along_rows=True)
    assert product_of(DENSE) == Product("float16", transposed=True, along_rows=True)
    floats = product_of(Kind(name="floats", shape=(1, 16, 32, 48), dtype="float32"))
    assert floats is not None and floats.dtype == "float32"  # taken where a target has TF32 alone
    schedule = Schedule(Kind(name="image", shape=(1, 16, 32, 8, 3, 1), layout="NCHW").function())
    image = Product.of(schedule, schedule.get_sblock("conv2d_nchw"))
    assert image is not None and not image.along_rows  # a row of an image is no row of the product


def test_a_warp_with_more_sums_than_registers_is_refused() -> None:
    """Tiles of rows and columns: of the grid twice, warps, and twice within a warp."""
    assert registers_of([[4, 1, 2, 2, 2], [4, 1, 2, 2, 1]]) <= MAX_REGISTERS
    assert registers_of([[1, 1, 1, 4, 4], [1, 1, 1, 4, 4]]) > MAX_REGISTERS
    assert registers_of([[1, 1, 8, 4, 1], [1, 1, 4, 4, 1]]) == math.inf  # 32 warps with 232 registers each
