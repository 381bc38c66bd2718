"""The shipped bundle that ranks a target's schedules where none is named."""

from __future__ import annotations

import json

import pytest

from wmsched.model import bundles as which
from wmsched.model.bundles import find, shipped


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("llvm -keys=cpu -mcpu=sapphirerapids -num-cores=2", "x86-avx512"),
        ("llvm -mcpu=znver4", "x86-avx512"),
        ("llvm -mcpu=znver3", "x86-avx2"),
        ("llvm -mcpu=core-avx2", "x86-avx2"),
        ("llvm -mcpu=alderlake -num-cores=8", "x86-avx2"),
        ("llvm -mcpu=sapphirerapids -mattr=-avx512f", "x86-avx2"),
        ("llvm -mcpu=haswell -mattr=+avx512f", "x86-avx512"),
        ("llvm", "x86-avx2"),  # what is not known has no AVX-512
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "x86-avx512"),
        ("cuda -arch=sm_89", "x86-avx512"),
    ],
)
def test_a_processor_gets_the_bundle_of_vectors_as_wide_as_its_own(target: str, expected: str):
    assert which.default_bundle(target) == expected
    assert expected in shipped()


def test_a_copy_without_it_takes_the_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(which, "shipped", lambda: ["x86-avx512"])
    assert which.default_bundle("llvm -mcpu=znver3") == "x86-avx512"


def test_what_the_bundles_have_learnt_from():
    def targets(name: str) -> list[str]:
        return json.loads((find(name) / "config.json").read_text())["targets"]

    assert all(map(which.has_avx2, targets("x86-avx2")))
    assert not any(map(which.has_avx2, targets("x86-avx512")))
