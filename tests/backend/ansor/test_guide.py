"""A bundle guides from a task's first schedule on; the stock model once it has something to be fitted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretending import make_row

from data_builder.collect.sampling import GUIDED_FROM, Guide, Sampler, guide
from wmsched.ansor.compute_dag import task_from_row
from wmsched.ansor.task_scheduler import WorldModelCostModel
from wmsched.toolchain.resolve import host_target


@pytest.fixture
def task() -> Any:
    return task_from_row(dict(make_row(48)), target=host_target())


def test_a_bundle_guides_the_very_first_batch(task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored = []

    def predict(model, task, states):
        scored.append((model.online, len(states)))
        return np.linspace(0.1, 0.9, len(states), dtype=np.float32)

    monkeypatch.setattr(WorldModelCostModel, "predict", predict)
    found = Sampler(task, tmp_path / "log.json", cost_model=guide("x86-avx512")).next(3, guided=True, seed=1)
    assert len(found) == 3
    assert scored and all(online for online, _ in scored)


@pytest.mark.parametrize("least", [0, GUIDED_FROM])
def test_a_guide_is_asked_once_it_has_enough(task, tmp_path: Path, least: int) -> None:
    from tvm import auto_scheduler

    made: list[Path] = []

    def make(log: Path) -> Any:
        made.append(log)
        return auto_scheduler.RandomModel()

    sampler = Sampler(task, tmp_path / "log.json", cost_model=Guide(make, least=least))
    sampler.next(2, guided=True, seed=1)
    assert bool(made) == (least == 0)
    sampler.measured.extend(bytes([n]) for n in range(GUIDED_FROM))
    sampler.next(2, guided=True, seed=1)
    assert made
