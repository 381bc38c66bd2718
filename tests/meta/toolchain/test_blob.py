"""A library linked as TVM does it and as we do it carries the same bytes."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import torch
import tvm
from built import TARGET, Of, model_of

from wmsched.relax.passes import pipeline
from wmsched.toolchain.blob import linking
from wmsched.tune.latency import library_call

SYMBOL = "__tvm_ffi__library_bin"


def carried(path):
    size = int.from_bytes(bytes((ctypes.c_char * 8).in_dll(ctypes.CDLL(str(path)), SYMBOL)), "little")
    return bytes((ctypes.c_char * (8 + size)).in_dll(ctypes.CDLL(str(path)), SYMBOL))


def test_a_library_carries_its_constants_as_tvm_packs_them(tmp_path):
    weights = torch.arange(3000.0).reshape(50, 60)
    model = model_of(Of(lambda x: x @ weights), torch.rand(2, 50))
    made = tvm.relax.build(pipeline.prepare(model.module, TARGET), TARGET)
    ours, theirs = tmp_path / "ours.so", tmp_path / "theirs.so"
    made.export_library(str(ours), **linking())
    made.export_library(str(theirs))
    assert len(carried(ours)) > weights.nbytes
    assert carried(ours) == carried(theirs)
    (found,) = library_call(ours, TARGET, list(model.inputs.values()))()
    wanted = (next(iter(model.inputs.values())) @ weights).numpy()
    assert np.allclose(found.numpy(), wanted, rtol=1e-5)


def test_constants_lie_behind_what_code_refers_to(tmp_path):
    model = model_of(Of(lambda x: x + torch.arange(64.0)), torch.rand(64))
    made = tvm.relax.build(pipeline.prepare(model.module, TARGET), TARGET)
    pipeline.link(made, tmp_path / "m.so")
    said = subprocess.run(["readelf", "-SW", tmp_path / "m.so"], capture_output=True, text=True, check=True)
    assert "build-id" not in said.stdout
    assert ".lrodata" in said.stdout
