"""A third party's Ansor log from a GPU that nobody here has: parsed, featurised and ranked by its actions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wmsched.cli.score import score_log
from wmsched.features.hardware import hardware_features
from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.features.table import HARDWARE_NAMES
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import RowBuilder
from wmsched.model.world_model import WorldModel
from wmsched.schedules.steps import parse_record
from wmsched.schedules.types import Workload


@pytest.fixture(scope="module")
def log(shared_data: Path) -> Path:
    path = shared_data / "tlcbench-t4" / "bert-B1-float32.json"
    if not path.is_file():
        pytest.skip(f"no log {path}")
    return path


@pytest.fixture(scope="module")
def tasks(log: Path) -> dict:
    """The records of each task, in the log's order."""
    found: dict[str, list] = {}
    for number, line in enumerate(log.read_bytes().splitlines(), start=1):
        record = parse_record(line, place=f"{log}:{number}")
        found.setdefault(record.workload_key, []).append(record)
    return found


def workload_of(records: list) -> Workload:
    return Workload(records[0].workload_key, records[0].target, records[0].hardware)


def test_every_record_is_read_and_says_what_ran_it(tasks: dict) -> None:
    records = [record for members in tasks.values() for record in members]
    assert len(records) == 100 and len(tasks) == 10
    assert [record.measurement.kind for record in records].count("ok") == 98
    h = dict(zip(HARDWARE_NAMES, hardware_features(workload_of(records)).tolist()))
    assert h["h.is_gpu"] == 1 and h["h.cores"] == 40 and h["h.warp_size"] == 32


def test_phi_needs_no_compute_dag(tasks: dict) -> None:
    for members in tasks.values():
        phi, texts = features([record.steps for record in members], workload_of(members))
        assert np.isfinite(phi[:, FEATURE_NAMES.index("count_SP")]).all()
        assert phi[:, FEATURE_NAMES.index("count_ann_bind")].min() >= 2  # a block and its threads
        assert all(len(text) == len(record.steps) for text, record in zip(texts, members))
        assert all("blockIdx.x" in " ".join(text) for text in texts)


def test_it_is_ranked_from_the_actions_alone(log: Path, tasks: dict) -> None:
    builder = RowBuilder(state="none")
    groups = []
    for key, members in tasks.items():
        workload = workload_of(members)
        rows = builder.rows(
            workload, np.zeros(0, np.float32), hardware_features(workload), [r.steps for r in members]
        )
        groups.append(RankGroup(key, rows, np.array([r.measurement.seconds for r in members])))
    config = RankerConfig(rounds=60, depth=4, threads=1)
    model = WorldModel(Ranker.fit(groups, config), state="none")
    bad: list[str] = []
    ranked = list(score_log(log, model, bad=bad))
    assert bad == [] and len(ranked) == 10
    for task in ranked:
        assert not task.known and len(task.lines) == 10
        assert np.isfinite(task.scores).all() and len(set(task.scores.tolist())) > 1
    assert np.mean([task.quality()["pairwise"] for task in ranked]) > 0.8  # it has seen these
    # and one that it has not seen gets scores too
    blind = WorldModel(Ranker.fit(groups[1:], config), state="none")
    scores = blind.task(workload_of(tasks[groups[0].key]), "").score([r.steps for r in tasks[groups[0].key]])
    assert scores.shape == (10,) and ((scores > 0) & (scores <= 1)).all() and np.ptp(scores) > 0
