"""Which of the shipped bundles ranks AutoScheduler's schedules for a target, where none is named."""

from __future__ import annotations

from wmsched.describe import shipped
from wmsched.features.hardware import hardware_features
from wmsched.features.vector_width import AVX2, registers
from wmsched.schedules.types import Workload

AVX512_BUNDLE, AVX2_BUNDLE = "x86-avx512", "x86-avx2"


def has_avx2(target: str) -> bool:
    """Whether a target's text is of an x86 processor without AVX-512."""
    return registers(hardware_features(Workload("", target))) == AVX2


def default_bundle(target: str) -> str:
    """The name of the bundle for a target's text: the one that has learnt from vectors as wide as its are.

    ARM and whatever else is no x86 processor with AVX2 alone gets the one of most records.
    """
    return AVX2_BUNDLE if has_avx2(target) and AVX2_BUNDLE in shipped() else AVX512_BUNDLE
