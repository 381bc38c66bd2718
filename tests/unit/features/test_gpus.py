"""h of GPUs: from the target or the device's name, without one in the machine."""

from __future__ import annotations

import json
import math

import pytest

from wmsched.base.errors import UnknownName
from wmsched.features.gpus import CAPABILITIES, GPUS, cuda_target, gpu_of
from wmsched.features.hardware import gpu_columns, hardware_features, hardware_parameters
from wmsched.features.table import HARDWARE_NAMES
from wmsched.schedules.types import Workload

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


def test_rows_have_what_their_capability_says() -> None:
    assert {gpu.arch for gpu in GPUS} == set(CAPABILITIES)
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    for gpu in GPUS:
        kilobytes = (gpu.shared >> 10, gpu.block_shared >> 10, gpu.l1 >> 10)
        assert (*kilobytes, gpu.sm_threads) == CAPABILITIES[gpu.arch]
        assert (gpu.warp, gpu.max_threads, gpu.registers) == (32, 1024, 65536)
        assert gpu_of(f"NVIDIA {gpu.name}") is gpu  # and no other's name is found in it
        assert gpu_of(json.dumps(cuda_target(f"NVIDIA GeForce {gpu.name}"))) is gpu


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA RTX A1000 Laptop GPU", "8.6"),  # no A100
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
        ("NVIDIA GeForce RTX 2080 Ti", "7.5"),
    ],
)
def test_a_board_that_is_like_none_is_its_architectures(name: str, capability: str) -> None:
    arch = f"sm_{capability.replace('.', '')}"
    assert gpu_of(name) is None
    assert gpu_of(json.dumps(cuda_target(name, capability))) is next(g for g in GPUS if g.arch == arch)


def test_a_gpu_that_is_not_known_has_more_than_one_multiprocessor() -> None:
    target = cuda_target("NVIDIA Something New", "13.0")
    assert hardware_parameters(json.dumps(target))[0] > 1


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
