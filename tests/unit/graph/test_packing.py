"""Base-7 packing: whatever is packed comes back, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wmsched.graph.packing import CODES, pack_configs, unpack_configs

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, max_side=5).map(lambda shape: (*shape[:-1], 6 * shape[-1]))


@given(
    hnp.arrays(np.int8, SHAPES, elements=st.integers(-1, 5)), st.sampled_from(["int8", "int64", "float32"])
)
def test_packing_is_lossless_whatever_the_type(values: np.ndarray, dtype: str) -> None:
    codes = pack_configs(values.astype(dtype))
    assert codes.dtype == np.int32
    assert codes.shape == (*values.shape[:-1], values.shape[-1] // 6)
    np.testing.assert_array_equal(unpack_configs(codes), values)


@given(hnp.arrays(np.int32, hnp.array_shapes(max_dims=3, max_side=5), elements=st.integers(0, CODES - 1)))
def test_every_code_is_of_one_vector(codes: np.ndarray) -> None:
    np.testing.assert_array_equal(pack_configs(unpack_configs(codes)), codes)


def test_a_code_is_the_number_in_base_seven() -> None:
    values = [3, 2, 1, 0, -1, -1]
    assert pack_configs(values).tolist() == [sum((x + 1) * 7**k for k, x in enumerate(values))]
    assert pack_configs([-1] * 6).tolist() == [0]
    assert pack_configs([5] * 6).tolist() == [7**6 - 1]


def test_an_axis_without_rows_or_nodes_is_packed() -> None:
    assert pack_configs(np.zeros((0, 3, 18))).shape == (0, 3, 3)
    assert unpack_configs(np.zeros((4, 0, 3), np.int32)).shape == (4, 0, 18)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([6, 0, 0, 0, 0, 0], "value 6 is no whole number"),
        ([-2, 0, 0, 0, 0, 0], "value -2 is no whole number"),
        ([0.5, 0, 0, 0, 0, 0], "value 0.5 is no whole number"),
        ([float("nan"), 0, 0, 0, 0, 0], "value nan is no whole number"),
        ([0, 0, 0, 0, 0], "multiple of 6"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_value(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_configs(values)


def test_codes_beyond_the_last_are_refused() -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.117648"):
        unpack_configs([7**6])
