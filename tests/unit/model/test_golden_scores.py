"""Scores of every shipped bundle, to the last bit as at commit e1e6f71, before modules moved into rooms.

`tests/golden/scores` holds three small datasets and, in `margins.json`, the margins in hex. To write
them anew (only when a bundle or a feature changes on purpose):
``PYTHONPATH=tests/support python tests/unit/model/test_golden_scores.py``.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import checkout
import numpy as np
import pytest

from wmsched.learn.data.dataset import Dataset
from wmsched.model.world_model import WorldModel

GOLDEN = checkout.GOLDEN / "scores"
CASES = {
    "x86-avx512": ("x86-sample",),
    "x86-avx2": ("x86-sample",),
    "x86-avx512-paper": ("x86-sample",),
    "x86-meta": ("meta-zen4",),
    "cuda-meta": ("meta-h200",),
}
PER_WORKLOAD = 24


def margins(bundle: str, data: str) -> dict[str, list[str]]:
    """Margins of the first records of each workload, in hex, by workload id."""
    model = WorldModel.from_pretrained(bundle)
    dataset = Dataset(GOLDEN / data)
    found = {}
    for workload_id in dataset.workload_ids:
        scorer = model.task(dataset.workload(workload_id), dataset.initial(workload_id))
        steps = [trajectory.steps for trajectory in dataset.trajectories(workload_id)[:PER_WORKLOAD]]
        found[workload_id] = [float(margin).hex() for margin in scorer.margins(steps)]
    return found


def processor() -> str:
    """Name of a kind of processor: PyTorch's sums depend on its vector instructions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:12]


@pytest.mark.parametrize(("bundle", "data"), [(b, d) for b, many in CASES.items() for d in many])
def test_margins_are_those_of_before_to_the_last_bit(bundle: str, data: str) -> None:
    golden = json.loads((GOLDEN / "margins.json").read_text())
    before, now = golden["margins"][f"{bundle}/{data}"], margins(bundle, data)
    assert sum(map(len, before.values())) >= 60
    if bundle == "x86-avx512-paper" and golden["processor"] != processor():
        # E and F are PyTorch's matrix products, whose order of summation is the processor's
        assert before.keys() == now.keys()
        for key, values in before.items():
            expected = [float.fromhex(value) for value in values]
            got = [float.fromhex(value) for value in now[key]]
            close = np.isclose(got, expected, rtol=1e-3, atol=1e-3)
            assert close.mean() > 0.98  # a split of a tree may fall on the other side
        return
    assert now == before


if __name__ == "__main__":
    every = {f"{b}/{d}": margins(b, d) for b, many in CASES.items() for d in many}
    text = json.dumps({"processor": processor(), "margins": every}, indent=0)
    (GOLDEN / "margins.json").write_text(text + "\n")
