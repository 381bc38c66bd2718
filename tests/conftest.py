"""Settings and fixtures that every test process shares."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# Until all tests are collected nothing is garbage: they, PyTorch and TVM stay.
gc.disable()

# Modules that tests share tell the values of a failed assertion, as test modules do.
pytest.register_assert_rewrite(*(path.stem for path in (ROOT / "tests" / "support").glob("*.py")))

# No test reaches out for weights, and none waits to be told so by a time-out.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Tests that run beside each other keep the cores busy: no timing in them waits for a quieter machine.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("WMSCHED_NO_PAUSES", "1")

# Machines under test are small and shared: an example's time says nothing, and a failure must come again.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole runs come first: begun last, one of half a minute would leave the other cores idle."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: "tune" not in item.path.relative_to(ROOT).parts)


def pytest_collection_finish() -> None:
    """The collector of garbage need not look at what is there now."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The measured tuning logs beside the checkout (``../shared/data``); absent, the test is skipped."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no measured logs in {folder}")
    return folder


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]:
    """A folder by its name, and what making it came to (pickled, for the other workers).

    The first of the parallel workers to need it makes it; the others wait, and none may change it.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of all workers of this run

    def made(name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
        folder, told = base / "made_once" / name, base / "made_once" / f"{name}.pickle"
        folder.parent.mkdir(exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not told.exists():  # also where the worker before failed at it, and left a part
                shutil.rmtree(folder, ignore_errors=True)
                told.write_bytes(pickle.dumps(make(folder)))
        return folder, pickle.loads(told.read_bytes())

    return made
