"""These tests run with AutoScheduler's TVM; where it is absent each module is skipped, with the reason."""

from __future__ import annotations

import pytest

from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain.resolve import autoscheduler_tvm

try:
    autoscheduler_tvm()
    WHY_NOT = ""
except EnvironmentProblem as problem:
    WHY_NOT = str(problem)


class _Skipped(pytest.Module):
    def collect(self):
        pytest.skip(WHY_NOT, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return _Skipped.from_parent(parent, path=module_path) if WHY_NOT else None


@pytest.fixture(scope="session")
def target() -> str:
    """The target of this machine."""
    from wmsched.toolchain.resolve import host_target

    return host_target()


@pytest.fixture(scope="session")
def matmul(target: str):
    """A search task small enough that a candidate is measured in a moment: 64 x 64 x 64."""
    from tvm import auto_scheduler, te

    def fused_small_matmul(n: int):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        k = te.reduce_axis((0, n), name="k")
        return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]

    auto_scheduler.register_workload(fused_small_matmul, override=True)
    return auto_scheduler.SearchTask(func=fused_small_matmul, args=(64,), target=target)


@pytest.fixture(scope="session")
def states(matmul):
    """Three hundred random schedules of it, as the search hands them to a cost model."""
    from tvm import auto_scheduler

    params = {"sample_init_min_population": 300, "evolutionary_search_population": 400}
    policy = auto_scheduler.SketchPolicy(
        matmul, auto_scheduler.RandomModel(), params=params, seed=1, verbose=0
    )
    return list(policy.sample_initial_population())[:300]


@pytest.fixture(scope="module")
def processes():
    """Builders and runners stay for all tests of a module: each is started with TVM's import."""
    from wmsched.ansor.workers import kept_workers

    with kept_workers():
        yield


@pytest.fixture(scope="session")
def pointwise():
    """The zoo's row of a 1x1 convolution of ResNet-50."""
    from wmsched import zoo

    return next(row for row in zoo.rows() if (row["network"], row["index"]) == ("resnet50", 2))
