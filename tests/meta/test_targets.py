"""A target by its text: bare "cuda" is the GPU at hand, and what has no device here says what to look at."""

from types import SimpleNamespace

import pytest
import tvm

from wmsched.backends.machine import meta_target, need_device
from wmsched.errors import EnvironmentProblem


def device(**known):
    return lambda *_: SimpleNamespace(**known)


def test_cuda_alone_has_the_limits_of_the_gpu_at_hand(monkeypatch):
    here = device(exist=True, device_name="NVIDIA GeForce RTX 4090", compute_version="8.9")
    monkeypatch.setattr(tvm.runtime, "device", here)
    attributes = meta_target("cuda").attrs
    assert str(attributes["arch"]) == "sm_89" and int(attributes["max_threads_per_block"]) == 1024
    need_device(meta_target("cuda"), "cuda")


def test_without_a_gpu_the_error_says_where_to_look(monkeypatch):
    monkeypatch.setattr(tvm.runtime, "device", device(exist=False))
    with pytest.raises(EnvironmentProblem, match=r"'cuda'.* has no cuda device .*nvidia-smi"):
        need_device(meta_target("cuda"), "cuda")


def test_programs_that_would_crash_here_are_refused(without_avx512):
    skylake = '{"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}'
    with pytest.raises(EnvironmentProblem, match=r"skylake-avx512.*use avx512f.*each would crash.*-mcpu"):
        need_device(meta_target(skylake), skylake)
    need_device(meta_target(skylake.replace("skylake-avx512", "znver3")), "znver3")
