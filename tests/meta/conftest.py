"""These tests run with MetaSchedule's TVM; where it is absent they are skipped, with the reason."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

WHY_NOT = ""
if importlib.util.find_spec("tvm") is None:
    WHY_NOT = "apache-tvm is not installed: pip install -r requirements-meta.txt"
else:
    import tvm

    if not hasattr(tvm, "s_tir"):
        WHY_NOT = f"TVM {tvm.__version__} has no tvm.s_tir.meta_schedule: apache-tvm 0.27 is wanted"


@pytest.fixture
def without_avx512(monkeypatch):
    """This machine's processor as one that has AVX2 and no more."""
    from wmsched.toolchain import host_cpu

    flags = frozenset(name for name in host_cpu.VECTORS if not name.startswith("avx512"))
    monkeypatch.setattr(host_cpu, "read_cpuinfo", lambda path: ("AuthenticAMD", flags))


@pytest.fixture(scope="session")
def cpu():
    """A context of a matrix multiplication and eight of its candidates."""
    import programs as P

    return P.context(P.matmul(), P.CPU), P.sampled(P.context(P.matmul(), P.CPU))


@pytest.fixture(scope="session")
def bundle(cpu, tmp_path_factory):
    """A bundle without a state, trained on the candidates' traces."""
    import numpy as np

    from wmsched.features.hardware import hardware_features
    from wmsched.metaschedule.trace_reader import steps_of_schedule
    from wmsched.metaschedule.workload import workload_of
    from wmsched.model.groups import RankGroup
    from wmsched.model.ranker import Ranker, RankerConfig
    from wmsched.model.rows import RowBuilder
    from wmsched.model.world_model import WorldModel
    from wmsched.toolchain.targets import target_text

    ctx, candidates = cpu
    workload = workload_of(ctx.mod, target_text(ctx.target))
    steps = [steps_of_schedule(candidate.sch) for candidate in candidates]
    rows = RowBuilder(state="none").rows(
        workload, np.zeros(0, np.float32), hardware_features(workload), steps
    )
    seconds = np.arange(1.0, len(steps) + 1)
    ranker = Ranker.fit([RankGroup("mm", rows, seconds)], RankerConfig(rounds=8, threads=1))
    folder = tmp_path_factory.mktemp("bundles") / "mm"
    WorldModel(ranker, state="none").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Six records of each of two programs, collected in two runs with a kill between."""
    from collected import twelve_records

    return twelve_records(tmp_path_factory.mktemp("db") / "records")


@pytest.fixture(scope="session")
def files(made_once) -> dict[str, str]:
    """Small models as files that torch.export wrote; none may change them."""
    return made_once("models", write_models)[1]


def write_models(folder: Path) -> dict[str, str]:
    """The files by name."""
    import torch
    from torch import nn
    from tuning_models import Layers, Net, Sum, exported

    folder.mkdir()
    torch.manual_seed(0)
    batch = torch.export.Dim("batch")
    some = torch.randn(2, 4)
    return {
        "net": exported(folder, "net.pt2", Net(), torch.randn(1, 3, 16, 16)),
        "other": exported(folder, "other.pt2", Net(), torch.randn(1, 3, 16, 16)),
        "layers": exported(
            folder, "layers.pt2", Layers(), torch.randn(4, 64)
        ),  # too few rows for a kernel by rule
        "wide": exported(folder, "wide.pt2", Net(), torch.randn(2, 3, 16, 16)),
        "open": exported(folder, "open.pt2", Sum(), some, some, dynamic=({0: batch}, {0: batch})),
        "view": exported(folder, "view.pt2", nn.Flatten(0), some),
        "slice": exported(folder, "slice.pt2", nn.Embedding(50, 4), torch.arange(40).view(4, 10)[1:2]),
    }


@pytest.fixture(scope="session")
def tuned(files, made_once):
    """A folder in which the small net is tuned, what was printed, and what it came to; none may change it.

    Its library is the tuned one on any machine: made-up times choose schedules that some processors run no
    faster than TVM's own build, which would be kept in its place.
    """
    from unittest import mock

    from tuning_models import run

    from wmsched.tune import finish
    from wmsched.tune.builds import UNTUNED

    time_interleaved = finish.time_interleaved

    def none_slower_than_untuned(calls, **settings):
        seconds = time_interleaved(calls, **settings)
        return seconds | {UNTUNED: max(seconds.values())}

    with mock.patch.object(finish, "time_interleaved", none_slower_than_untuned):
        out, told = made_once("tuned-net", lambda out: run(files["net"], out, trials=12, finalists=4))
    return out, *told


class _Skipped(pytest.Module):
    def collect(self):
        pytest.skip(WHY_NOT, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return _Skipped.from_parent(parent, path=module_path) if WHY_NOT else None
