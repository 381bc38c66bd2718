"""phi of a processor with narrower or fewer vector registers is that of the candidate's twin on AVX-512."""

from __future__ import annotations

import numpy as np
import pytest

from wmsched.features.hardware import hardware_features
from wmsched.features.step_features import FEATURE_NAMES
from wmsched.features.vector_width import AVX2, AVX512, NEON, in_units, registers
from wmsched.schedules.types import Workload


def row(**columns: float) -> np.ndarray:
    """phi [1, P + 1] with these columns, others NaN; the last is a trace's."""
    out = np.full((1, len(FEATURE_NAMES) + 1), np.nan, np.float32)
    for name, value in columns.items():
        out[0, FEATURE_NAMES.index(name)] = value
    out[0, -1] = 5.0
    return out


def tile(rows: int, lanes: int) -> np.ndarray:
    """A register tile of that many rows of a vectorised loop, as phi has it in registers of 16."""
    registers = rows * -(-lanes // 16)
    return row(
        main_vector=np.log2(1 + lanes),
        main_extent_0=np.log2(1 + lanes),
        main_inner_spatial=np.log2(1 + rows * lanes),
        accumulators=np.log2(1 + registers),
        main_registers=np.log2(1 + registers),
        body_held=np.log2(1 + registers),
        main_vector_full=float(lanes % 16 == 0),
        vector_waste=-(-lanes // 16) * 16 / lanes,
        block_loads=np.log2(1 + rows + 1),
        block_loads_per_fma=0.0,
        body_loads_per_fma=0.0,
        consumer_vector=np.log2(1 + lanes),
        consumer_inner=np.log2(1 + lanes),
        consumer_contiguous=1.0,
    )


def value(phi: np.ndarray, name: str) -> float:
    return float(phi[0, FEATURE_NAMES.index(name)])


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_a_tile_fills_as_much_of_the_register_file(lanes: int) -> None:
    """All 16 of AVX2 are all 32 of AVX-512."""
    rows = 16 * 8 // lanes
    twin, wide = in_units(tile(rows, lanes), AVX2), tile(2 * rows, 2 * lanes)
    for name in (
        "accumulators",
        "main_registers",
        "body_held",
        "main_vector",
        "main_extent_0",
        "consumer_vector",
    ):
        assert value(twin, name) == pytest.approx(value(wide, name), abs=1e-5), name
    assert value(twin, "accumulators") == pytest.approx(np.log2(1 + 32), abs=1e-5)
    assert value(twin, "main_vector_full") == 1 and value(twin, "vector_waste") == 1
    assert value(twin, "main_inner_spatial") == pytest.approx(np.log2(1 + 4 * rows * lanes), abs=1e-5)


def test_what_is_not_counted_in_registers_stays() -> None:
    phi = tile(7, 32)
    twin = in_units(phi, AVX2)
    assert twin[0, -1] == 5.0 and np.isnan(value(twin, "traffic_l1"))
    assert in_units(phi, AVX512) is phi
    np.testing.assert_array_equal(phi, tile(7, 32))  # not written into


def test_without_a_vector_and_without_a_nest() -> None:
    scalar = in_units(row(main_vector=0.0, accumulators=2.0, main_extent_0=0.0), AVX2)
    assert value(scalar, "main_vector") == 0 and value(scalar, "main_extent_0") == 0
    assert value(scalar, "accumulators") == pytest.approx(np.log2(1 + 2 * 3), abs=1e-5)
    unknown = in_units(row(), AVX2)
    assert np.isnan(unknown[0, :-1]).all()


@pytest.mark.parametrize(
    "target, wanted",
    [
        ("llvm -mcpu=sapphirerapids", AVX512),
        ("llvm -mcpu=znver3", AVX2),
        ("llvm -mcpu=alderlake", AVX2),
        ("llvm -keys=arm_cpu,cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", NEON),
        ("cuda -arch=sm_89", AVX512),  # its columns are its own
    ],
)
def test_registers_are_told_by_the_target(target: str, wanted) -> None:
    assert registers(hardware_features(Workload(key="k", target=target))) == wanted
