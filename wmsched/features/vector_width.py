"""Convert phi to units of AVX-512 registers, for CPUs with other vector registers.

phi counts registers of 16 float32, and trees learn that a tile may fill about 28 of 32. With AVX2 the same
tile needs twice as many registers of half the width, of which there are 16. It spills, yet a ranker trained
on AVX-512 prefers it. So a candidate is shown as its twin on AVX-512: vectors that fill as many registers,
and tiles that fill the same share of the register file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wmsched.features.step_features import _INDEX
from wmsched.features.table import HARDWARE_NAMES

Floats = NDArray[np.float32]

_HARDWARE = {name: k for k, name in enumerate(HARDWARE_NAMES)}


class Registers(NamedTuple):
    """A core's vector registers: float32 in each, and how many there are."""

    lanes: int
    number: int


AVX512, AVX2, NEON = Registers(16, 32), Registers(8, 16), Registers(4, 32)


def registers(hardware: NDArray[np.floating]) -> Registers:
    """Return the registers of a CPU with features `hardware.hardware_features`; AVX-512's for a GPU."""
    if hardware[_HARDWARE["h.is_gpu"]] or hardware[_HARDWARE["h.avx512"]]:
        return AVX512
    return NEON if hardware[_HARDWARE["h.arm"]] else AVX2


def in_units(phi: Floats, own: Registers) -> Floats:
    """Return phi of the candidates' twins on AVX-512.

    Parameters
    ----------
    phi : float32 [N, P...]
        Candidates for a core with registers `own`. Columns after the first P
        (`table.FEATURE_NAMES`) stay.
    """
    if own == AVX512:
        return phi
    out = phi.copy()

    def column(name: str) -> Floats:
        return phi[:, _INDEX[name]]

    def times(name: str, factor: NDArray[np.floating] | float) -> None:
        """Of a column that is log2(1 + x): x that many times."""
        out[:, _INDEX[name]] = np.log2(1.0 + (np.exp2(column(name)) - 1.0) * factor)

    wider, more = AVX512.lanes / own.lanes, AVX512.number / own.number
    vector = np.round(np.exp2(column("main_vector")) - 1.0)
    lanes = np.fmax(vector, 1.0)
    now, was = np.ceil(lanes / own.lanes), np.ceil(lanes / AVX512.lanes)
    for name in ("accumulators", "main_registers", "body_held"):
        times(name, now / was * more)
    times("block_loads", more)
    for name in ("block_loads_per_fma", "body_loads_per_fma"):
        out[:, _INDEX[name]] = column(name) - np.log2(now / was)
    innermost = (vector > 1) & (column("main_extent_0") == column("main_vector"))
    times("main_extent_0", np.where(innermost, wider, 1.0))
    times("main_inner_spatial", np.where(vector > 1, wider * more, 1.0))
    times("main_vector", wider)
    times("consumer_inner", np.where(column("consumer_contiguous") > 0, wider, 1.0))
    times("consumer_vector", wider)
    out[:, _INDEX["main_vector_full"]] = (vector > 0) & (vector % own.lanes == 0)
    out[:, _INDEX["vector_waste"]] = now * own.lanes / lanes
    for name in ("main_vector_full", "vector_waste"):
        out[np.isnan(column(name)), _INDEX[name]] = np.nan
    return out
