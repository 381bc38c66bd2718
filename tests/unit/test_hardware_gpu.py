"""h of GPUs: from the target or the device's name, without one in the machine."""

from __future__ import annotations

import json
import math

import pytest

from wmsched.errors import UnknownName
from wmsched.hardware import (
    GPUS,
    HARDWARE_NAMES,
    cuda_target,
    gpu_columns,
    gpu_of,
    hardware_features,
    hardware_parameters,
)
from wmsched.types import Workload

A100 = (
    '{"kind":"cuda","arch":"sm_80","keys":["cuda","gpu"],"max_shared_memory_per_block":49152,'
    '"max_threads_per_block":1024,"thread_warp_size":32}'
)


def told(target: str, hardware: tuple[int, ...] = ()) -> dict[str, float]:
    values = hardware_features(Workload(key="k", target=target, hardware=hardware))
    assert all(map(math.isfinite, values))
    return dict(zip(HARDWARE_NAMES, map(float, values)))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("nvidia/geforce-rtx-4090", "RTX 4090"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("cuda -arch=sm_90a", "H100"),
        (A100, "A100"),
        ("cuda -keys=cuda,gpu -max_num_threads=1024 -model=t4 -thread_warp_size=32", "T4"),
        ("cuda -arch=sm_75", "T4"),
    ],
)
def test_a_gpu_is_found_by_its_name_or_its_architecture(text: str, name: str) -> None:
    found = gpu_of(text)
    assert found is not None and found.name == name


def test_what_names_none_is_none() -> None:
    assert gpu_of("cuda") is None and gpu_of("llvm -mcpu=sapphirerapids") is None
    assert gpu_of("cuda -arch=sm_61") is None


def test_columns_of_a_named_gpu_and_of_a_cpu() -> None:
    h = told(A100)
    assert h["h.is_gpu"] == 1 and h["h.cores"] == 108 and h["h.warp_size"] == 32
    assert h["h.log2_shared_memory"] == pytest.approx(math.log2(49153), abs=1e-4)
    assert told("cuda -model=t4", (-1, 16, 64, 49152, 2147483647, 1024, 8, 32))["h.cores"] == 40
    columns = gpu_columns(A100)
    assert columns["gpu_capability"] == 8.0 and columns["gpu_bandwidth"] == math.log2(1555.0)
    assert all(map(math.isnan, gpu_columns("llvm").values()))
    assert all(map(math.isnan, gpu_columns("cuda").values()))


def test_parameters_that_a_cpu_target_says() -> None:
    target = '{"kind":"llvm","keys":["cpu"],"mcpu":"sapphirerapids","num-cores":2}'
    assert hardware_parameters(target) == (2, 64, 64, 0, 0, 0, 0, 0)
    assert told(target, hardware_parameters(target)) == told(
        "llvm -mcpu=sapphirerapids -num-cores=2", (2, 64, 64, 0, 0, 0, 0, 0)
    )


def test_every_row_is_a_possible_gpu() -> None:
    for gpu in GPUS:
        assert gpu.block_shared <= gpu.shared <= gpu.l1 and gpu.l1 < gpu.l2
        assert 7 <= gpu.capability < 13 and gpu.bandwidth > 100 and gpu.registers == 65536
        assert gpu.sm_threads % gpu.warp == 0 and gpu.sm_threads >= gpu.max_threads


#: From NVIDIA: SMs, bytes of the L2 cache and GB/s of each board by its data sheet or whitepaper; the rest by
#: compute capability from the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
BOARDS = {
    "RTX 4090": ("sm_89", 128, 72 << 20, 1008),
    "H200": ("sm_90", 132, 50 << 20, 4800),
    "H100": ("sm_90", 132, 50 << 20, 3350),
    "A100": ("sm_80", 108, 40 << 20, 1555),
    "T4": ("sm_75", 40, 4 << 20, 320),
}
CAPABILITIES = {  # KB of shared memory of a multiprocessor and of a block, of L1 and shared; threads of an SM
    "sm_75": (64, 64, 96, 1024),
    "sm_80": (164, 163, 192, 2048),
    "sm_89": (100, 99, 128, 1536),
    "sm_90": (228, 227, 256, 2048),
}


def test_rows_say_what_the_vendor_does() -> None:
    assert {gpu.name for gpu in GPUS} == set(BOARDS)
    for gpu in GPUS:
        assert (gpu.arch, gpu.sms, gpu.l2, gpu.bandwidth) == BOARDS[gpu.name]
        kilobytes = (gpu.shared >> 10, gpu.block_shared >> 10, gpu.l1 >> 10)
        assert (*kilobytes, gpu.sm_threads) == CAPABILITIES[gpu.arch]
        assert (gpu.warp, gpu.max_threads, gpu.registers) == (32, 1024, 65536)


@pytest.mark.parametrize(
    ("name", "capability", "wanted"),
    [
        ("NVIDIA GeForce RTX 4090", "8.9", ("sm_89", "RTX 4090")),
        ("NVIDIA H200", "9.0", ("sm_90", "H200")),
        ("NVIDIA A100-SXM4-40GB", "", ("sm_80", "A100")),
        ("Tesla T4", "7.5", ("sm_75", "T4")),
        ("NVIDIA GeForce GTX 1080", "6.1", ("sm_61", None)),
    ],
)
def test_the_target_of_a_device_names_it(name: str, capability: str, wanted: tuple[str, str | None]) -> None:
    target = cuda_target(name, capability)
    assert target["kind"] == "cuda" and target["arch"] == wanted[0]
    found = gpu_of(json.dumps(target))
    assert (found.name if found else None) == wanted[1]
    assert hardware_parameters(json.dumps(target))[5:] == (1024, 8, 32)


def test_a_device_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(UnknownName, match="capability"):
        cuda_target("NVIDIA Something New")
