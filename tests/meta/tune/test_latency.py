"""How far outputs are from each other, and how far they may be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from wmsched.tune.builds import Builds
from wmsched.tune.latency import AT_MOST, COARSE, TOLERANCE, difference, time_interleaved, tolerance
from wmsched.tune.prepare import Untuned


def test_infinite_outputs_are_compared_by_place_and_hide_no_error():
    inf = float("inf")
    right = torch.tensor([1.0, -inf, 2.0, torch.finfo(torch.float32).min])
    wrong = torch.tensor([1.5, -inf, 2.0, torch.finfo(torch.float32).min])
    assert difference(right.clone(), right) == 0.0
    assert difference(wrong, right) == pytest.approx(0.25)
    assert difference(torch.tensor([1.0, inf, 2.0, -inf]), right) == inf
    assert difference(torch.tensor([1.0, 0.0, 2.0, -inf]), right) == inf
    assert difference(torch.tensor([-inf]), torch.tensor([-inf])) == 0.0
    assert difference(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])) == inf


def test_short_types_may_differ_by_a_rounding_whether_they_come_in_or_out():
    tokens, logits = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.bfloat16)
    assert tolerance([tokens, logits]) == tolerance([torch.zeros(2, dtype=torch.int8)]) == COARSE
    assert tolerance([tokens, torch.zeros(2), torch.zeros(2, dtype=torch.bool)]) == TOLERANCE


def test_a_slow_untuned_build_is_not_called_again(tmp_path):
    """Its first call, which said what is right, took longer than a model that is timed twice may."""
    library = tmp_path / "given.so"
    library.write_text("no library: loading it would fail")
    outputs = torch.zeros(2)
    model = SimpleNamespace(inputs={})
    made = Builds(tmp_path, Untuned(library, outputs, AT_MOST + 1), None, None, model)  # type: ignore[arg-type]
    assert made.expected is outputs and made.outputs["untuned"] is outputs
    assert time_interleaved(made.calls) == {"untuned": AT_MOST + 1}
