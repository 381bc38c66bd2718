"""Pooling whose window is larger than the image: the result is right, and nothing is padded to the window."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from tuning_models import exported

from wmsched.relax.importers.load import load
from wmsched.relax.passes import pipeline
from wmsched.toolchain.targets import meta_target
from wmsched.tune.latency import difference, library_call

POOLS = {
    "mean": nn.AvgPool2d(99, ceil_mode=True),
    "mean, two sizes": nn.AvgPool2d((99, 7), ceil_mode=True),
    "most": nn.MaxPool2d(99, ceil_mode=True),
    "exact": nn.AvgPool2d(7),
    "of sequences": nn.Sequential(nn.Flatten(2), nn.AvgPool1d(999, ceil_mode=True)),
}


@pytest.mark.parametrize("kind", POOLS)
def test_a_window_beyond_the_image_sees_the_image(kind, tmp_path):
    data = torch.randn(1, 5, 7, 7)
    model = load(exported(tmp_path, "pool.pt2", POOLS[kind].eval(), data))
    target = meta_target(None)
    prepared = pipeline.prepare(model.module, target)
    pipeline.link(pipeline.compile_module(prepared, target), tmp_path / "pool.so")
    got = library_call(tmp_path / "pool.so", target, list(model.inputs.values()))()
    assert difference(got, model.eager()) < 1e-6
    if kind != "exact":
        assert "pad_temp" not in prepared.script()
