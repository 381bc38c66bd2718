"""Bounds of the time that a function plausibly takes on a machine; no TVM."""

from __future__ import annotations

import math

import pytest

from wmsched.measure.roofline import Roofline


def test_bounds_are_far_on_both_sides_of_what_a_machine_does() -> None:
    machine = Roofline(threads=2, gflops=100.0, bandwidth=((1 << 15, 100.0), (1 << 28, 10.0)))
    least, most = machine.plausible(1e8, 1e6, 1e4)
    assert least == pytest.approx(1e-3 / 8) and most == pytest.approx(64 * (2 * (1e-3 + 1e-4) + 2e-5))
    assert machine.plausible(0.0, 1e9, 1 << 28)[0] == pytest.approx((1 << 28) / 1e10 / 8)  # a table's rows
    # what was seen: 3.1 ms for a function of 0.14 ms for all calls
    assert machine.plausible(1e5, 1e5, 1e4)[1] < 3.1e-3


def test_operations_on_bytes_have_their_own_peak() -> None:
    memory = ((1 << 28, 10.0),)
    floats, both = (Roofline(threads=2, gflops=100.0, int8=n, bandwidth=memory) for n in (math.nan, 400.0))
    assert both.plausible(1e9, 1.0, 1.0)[0] == pytest.approx(floats.plausible(1e9, 1.0, 1.0)[0] / 4)


def test_a_machine_that_cannot_be_measured_sets_no_bounds() -> None:
    assert Roofline(threads=2).plausible(1e9, 1e9, 1e9) == (0.0, math.inf)
