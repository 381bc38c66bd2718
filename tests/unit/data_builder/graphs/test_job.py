"""A graph's folder and file: what is written is what `wmsched.graph` reads."""

from __future__ import annotations

import numpy as np
import pytest

from data_builder.graphs.encoding import FIRST_OPCODE, Node, configurations, encode, option_codes
from data_builder.graphs.job import Job, Plan, Timing
from data_builder.graphs.sampling import Part
from wmsched.base.errors import DatasetError
from wmsched.graph import read_graph

OPTIONS = [["kernel", "direct", "winograd2"], ["fused", "apart"], ["fused", "copied"]]
CHOSEN = [(0, 0, 0), (2, 1, 0), (1, 0, 1)]


def filled(tmp_path) -> Job:
    job = Job(tmp_path, "net-0")
    job.begin()
    parts = [Part((0, 1), "k", ((0, 0), (1, 0), (2, 1))), Part((2,), "", ((0,), (1,)))]
    variants = [(f"v{n}", "k", chosen, [[1, 4]]) for n, chosen in enumerate(parts[0].choices)]
    nodes = [Node(FIRST_OPCODE, ((21, 4.0),), (), 1), *(Node(126, (), (n,), 4) for n in range(3))]
    plan = Plan(OPTIONS, parts, CHOSEN, ["apart: its outputs are off"], variants)
    job.write(plan, encode(nodes, [1, 2, 3]), [np.ones((1, 4), np.float32)])
    return job


def test_codes_say_which_option_a_site_has() -> None:
    found = configurations(OPTIONS, CHOSEN)
    assert found.shape == (3, 3, 24)
    assert found[:, :, 18:22].tolist() == [
        [[4, -1, -1, 1], [-1, 0, -1, 1], [-1, -1, 0, 1]],
        [[2, -1, -1, 0], [-1, 1, -1, 0], [-1, -1, 0, 1]],
        [[0, -1, -1, 0], [-1, 0, -1, 1], [-1, -1, 1, 0]],
    ]
    assert found[0, 0, :18].tolist() == [3, 2, 1, 0, -1, -1] * 3  # channels last
    assert (found[:, 1:, :18] == -1).all()
    assert option_codes(OPTIONS).tolist() == [[4, 0, 2], [0, 1, -1], [0, 1, -1]]


def test_a_finished_graph_is_read_as_a_layout_file(tmp_path) -> None:
    job = filled(tmp_path)
    assert job.is_built and not job.is_done
    assert job.plan().chosen == CHOSEN and job.inputs()[0].tolist() == [[1, 1, 1, 1]]
    for scale in (1.0, 3.0):
        job.add(Timing(scale * np.array([2e-3, 1e-3, 4e-3]), scale * np.array([1e-3, 2e-3, 5e-4])))
    assert job.finish() == 3 and job.is_done and not job.folder.exists()
    graph = read_graph(job.file)
    assert graph.config_runtime.tolist() == [4_000_000, 2_000_000, 8_000_000]
    assert graph.edge_index.tolist() == [[1, 0], [2, 1], [3, 2]] and graph.node_config_ids.tolist() == [
        1,
        2,
        3,
    ]
    with np.load(job.file) as file:
        assert file["config_runtime_timings"][1].tolist() == [6_000_000, 3_000_000, 12_000_000]
        assert file["added_costs"].tolist() == [2_000_000, 1_000_000, 4_000_000]  # of the regions, averaged
        assert file["region_sites"].tolist() == [[0, 0, 1]] and file["rules_index"] == 0
        assert file["region_costs"].tolist() == [
            [0, 2_000_000, 0, 0], [0, 4_000_000, 1, 0], [0, 1_000_000, 2, 1]
        ]  # fmt: skip


def test_a_damaged_plan_is_told(tmp_path) -> None:
    job = filled(tmp_path)
    (job.folder / "plan.json").write_text("{")
    with pytest.raises(DatasetError, match=r"plan\.json.*remove .*net-0"):
        job.plan()
