"""Which kernels are compiled with short headers, and that NVRTC gets them and nothing is left behind."""

from __future__ import annotations

import json
import sys
import types

import pytest
import tvm
import tvm_ffi

from wmsched.codegen import cuda_headers
from wmsched.features.gpus import cuda_target
from wmsched.metaschedule.measure.builder import build

KERNEL = """
#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
extern "C" __global__ void main_kernel(float* A) { A[threadIdx.x] = 1.0f; }
"""


@pytest.fixture
def compiler(monkeypatch):
    """TVM's compiler of CUDA, put back afterwards."""
    from tvm.support import nvcc

    before = nvcc.tvm_callback_cuda_compile
    yield nvcc
    nvcc.tvm_callback_cuda_compile = before
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", before, override=True)


def test_what_needs_the_whole_library_keeps_it() -> None:
    assert cuda_headers.suits(KERNEL)
    assert cuda_headers.suits("#include <cuda_fp16.h>\n#include <mma.h>\n" + KERNEL)
    assert not cuda_headers.suits("#include <cuda/barrier>\n" + KERNEL)
    assert not cuda_headers.suits(KERNEL + "void f(const CUtensorMap* map);")


@pytest.mark.slow
def test_a_convolution_is_sampled_on_a_gpu_and_its_kernel_needs_no_more() -> None:
    """The includes that TVM 0.27 writes are known; a later one's would be left to it.

    Of a small population no schedule of this program was left: most take more than a block may.
    """
    target = tvm.target.Target(cuda_target("RTX 4090"))
    from data_builder.metaschedule.programs import training_programs
    from data_builder.metaschedule.sampling import TraceSampler
    from wmsched.metaschedule.intrinsics import import_intrinsics

    import_intrinsics(target)
    sampler = TraceSampler(training_programs()[1].module(), target, measured=set())
    (candidate, _), *_ = sampler.next(8, guided=False, seed=1)
    (device,) = build(candidate.sch.mod, target).imports
    assert cuda_headers.suits(device.inspect_source("cuda"))


def test_nvrtc_is_given_the_headers_while_it_compiles(compiler, monkeypatch) -> None:
    told = []

    def create(code, name, count, texts, names):
        told.append((count, names))
        return code

    nvrtc = types.ModuleType("cuda.bindings.nvrtc")
    nvrtc.nvrtcCreateProgram = create
    bindings = types.ModuleType("cuda.bindings")
    bindings.nvrtc = nvrtc
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", nvrtc)
    compiler.tvm_callback_cuda_compile = lambda code: nvrtc.nvrtcCreateProgram(code, b"k.cu", 0, None, None)
    cuda_headers.install()
    cuda_headers.install()  # once is enough
    compile_cuda = tvm.get_global_func("tvm_callback_cuda_compile")
    assert compile_cuda(KERNEL) == KERNEL
    assert compile_cuda("#include <cuda/barrier>\n" + KERNEL)
    assert told == [(3, [name.encode() for name in cuda_headers.HEADERS]), (0, None)]
    assert nvrtc.nvrtcCreateProgram is create
    # what they are too short for is compiled with the whole ones
    del told[:]

    def fussy(code):
        nvrtc.nvrtcCreateProgram(code, b"k.cu", 0, None, None)
        if told[-1][0]:
            raise RuntimeError("identifier is undefined")
        return code

    assert cuda_headers.compiled(KERNEL, fussy) == KERNEL and [count for count, _ in told] == [3, 0]


def test_with_nvrtc_the_code_is_the_same_and_sooner_there(compiler) -> None:
    """Only where `pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime` was done; needs no GPU."""
    pytest.importorskip("cuda.bindings.nvrtc")
    target = tvm.target.Target(json.loads(json.dumps(cuda_target("RTX 4090"))))
    with target:
        try:
            whole = compiler.tvm_callback_cuda_compile(KERNEL)
        except RuntimeError as error:
            pytest.skip(f"no CUDA headers here: {error}")
        cuda_headers.install()
        short = compiler.tvm_callback_cuda_compile(KERNEL)
    assert b"main_kernel" in bytes(short) and len(short) < len(whole)
