"""Fixtures of the graph room's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The networks here are too small for more, and the same bits need the same order of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def records(shared_data: Path) -> Path:
    """Real records of an autotuner, TpuGraphs' raw form; absent, the test is skipped."""
    folder = shared_data / "tpugraphs"
    if not folder.is_dir():
        pytest.skip(f"no real records of an autotuner in {folder}")
    return folder
