"""Scores of every shipped bundle, to the last bit as at commit e1e6f71, before modules moved into rooms.

`benchmarks.regressions.golden` computes them; its `--write` writes the golden file anew.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.regressions import golden
from wmsched.model.bundles import shipped


def test_every_shipped_bundle_is_compared() -> None:
    assert set(shipped()) == set(golden.DATA)


@pytest.mark.parametrize(("bundle", "data"), golden.DATA.items())
def test_margins_are_those_of_before_to_the_last_bit(bundle: str, data: str) -> None:
    kept = golden.before()
    before, now = kept["margins"][f"{bundle}/{data}"], golden.margins(bundle)
    assert sum(map(len, before.values())) >= 60
    if bundle == "x86-avx512-paper" and kept["processor"] != golden.processor():
        # E and F are PyTorch's matrix products, whose order of summation is the processor's
        assert before.keys() == now.keys()
        for key, values in before.items():
            expected = [float.fromhex(value) for value in values]
            got = [float.fromhex(value) for value in now[key]]
            close = np.isclose(got, expected, rtol=1e-3, atol=1e-3)
            assert close.mean() > 0.98  # a split of a tree may fall on the other side
        return
    assert now == before
