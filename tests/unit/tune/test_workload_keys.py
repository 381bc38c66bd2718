"""A row of a workloads file is found by each key that a log may have of its task."""

from __future__ import annotations

import json

import pytest

from wmsched.base.errors import UnknownName
from wmsched.schedules.workload_file import by_key
from wmsched.tune.tasks.tune_tasks import rows_of


def test_rows_by_their_own_keys_and_by_those_of_another_tvm() -> None:
    ours = {"workload_key": "ours", "upstream_key": "theirs"}
    plain = {"workload_key": "plain", "upstream_key": None}
    old = {"workload_key": "old"}
    again = {"workload_key": "ours", "upstream_key": "plain"}
    found = by_key([ours, plain, old, again])
    assert found == {"ours": ours, "theirs": ours, "plain": plain, "old": old}
    assert found["ours"] is ours and found["plain"] is plain  # its own key goes before another's


def test_a_row_of_that_key_goes_before_one_that_names_it() -> None:
    theirs = {"workload_key": "theirs"}
    assert by_key([{"workload_key": "ours", "upstream_key": "theirs"}, theirs])["theirs"] is theirs


def test_a_task_of_several_networks_is_tuned_for_each_with_its_weight_there(tmp_path) -> None:
    both = {"resnet18": 3, "resnet50": 1}
    shared = {"workload_key": "a", "network": "resnet18", "weight": 3, "networks": both}
    rows = [shared, {"workload_key": "b", "network": "resnet18", "weight": 2}]
    path = tmp_path / "w.json"
    path.write_text(json.dumps([row | {"tensors": []} for row in rows]))
    assert [(row["workload_key"], row["weight"]) for row in rows_of("resnet18", path)] == [("a", 3), ("b", 2)]
    assert [(row["workload_key"], row["weight"]) for row in rows_of("resnet50", path)] == [("a", 1)]
    with pytest.raises(UnknownName, match="its networks are resnet18, resnet50"):
        rows_of("bert", path)
