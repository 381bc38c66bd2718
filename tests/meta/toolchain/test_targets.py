"""A target by its text: bare "cuda" is the GPU at hand, and what has no device here says what to look at."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
import tvm

from wmsched.base.cores import usable_cores
from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain.targets import meta_target, need_device


def device(**known):
    return lambda *_: SimpleNamespace(**known)


@pytest.fixture
def bindings(monkeypatch):
    """NVIDIA's bindings, to be asked for and no more."""
    found = ModuleType("cuda.bindings")
    found.__spec__ = ModuleSpec("cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", found)


def test_cuda_alone_has_the_limits_of_the_gpu_at_hand(monkeypatch, bindings):
    here = device(exist=True, device_name="NVIDIA GeForce RTX 4090", compute_version="8.9")
    monkeypatch.setattr(tvm.runtime, "device", here)
    attributes = meta_target("cuda").attrs
    assert str(attributes["arch"]) == "sm_89" and int(attributes["max_threads_per_block"]) == 1024
    need_device(meta_target("cuda"), "cuda")


def test_without_a_gpu_the_error_says_where_to_look(monkeypatch):
    monkeypatch.setattr(tvm.runtime, "device", device(exist=False))
    with pytest.raises(EnvironmentProblem, match=r"'cuda'.* has no cuda device .*nvidia-smi"):
        need_device(meta_target("cuda"), "cuda")


def test_without_a_compiler_for_cuda_the_error_names_its_packages(monkeypatch):
    monkeypatch.setattr(
        tvm.runtime, "device", device(exist=True, device_name="NVIDIA H100", compute_version="9.0")
    )
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))  # another package of that name
    monkeypatch.delitem(sys.modules, "cuda.bindings", raising=False)
    with pytest.raises(EnvironmentProblem, match=r"pip install cuda-bindings .*TVM_CUDA_COMPILE_MODE=nvcc"):
        need_device(meta_target("cuda"), "cuda")
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    need_device(meta_target("cuda"), "cuda")


def test_a_gpu_that_cuda_13_compiles_nothing_for_is_refused(monkeypatch, bindings):
    old = device(exist=True, device_name="Tesla V100-SXM2-16GB", compute_version="7.0")
    monkeypatch.setattr(tvm.runtime, "device", old)
    with pytest.raises(EnvironmentProblem, match=r"compute capability 7\.0.*7\.5"):
        need_device(meta_target("cuda"), "cuda")


def test_programs_that_would_crash_here_are_refused(without_avx512):
    skylake = '{"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}'
    with pytest.raises(EnvironmentProblem, match=r"skylake-avx512.*use avx512f.*each would crash.*-mcpu"):
        need_device(meta_target(skylake), skylake)
    need_device(meta_target(skylake.replace("skylake-avx512", "znver3")), "znver3")


def test_a_processor_without_a_number_of_cores_has_this_process_s():
    target = meta_target('{"kind": "llvm", "mcpu": "skylake-avx512"}')
    assert int(target.attrs["num-cores"]) == usable_cores() and target.attrs["mcpu"] == "skylake-avx512"
    assert int(meta_target('{"kind": "llvm", "num-cores": 7}').attrs["num-cores"]) == 7
