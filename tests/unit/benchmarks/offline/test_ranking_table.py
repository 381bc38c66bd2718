"""The tables of docs/explanation/evaluation.md from result lines."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from ranking_lines import ranking_line
from toy_stored import write_toy

from benchmarks.offline import ranking, ranking_table
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import TaskInputs, gather
from wmsched.model.rows import column_names


def _write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_row_holds_means_and_the_difference_workload_by_workload(tmp_path):
    lines = [ranking_line("ours", g, p) for g, p in (("a", 0.6), ("b", 0.8), ("c", 0.7))]
    lines += [ranking_line("plain", g, p - 0.1) for g, p in (("a", 0.6), ("b", 0.8), ("c", 0.7))]
    found = ranking_table.read([_write(tmp_path / "x.jsonl", lines)])
    rows = ranking_table.overall(found["network"])
    ours, plain = (next(row for row in rows if row.startswith(f"| {name} |")) for name in ("ours", "plain"))
    assert "| 0.700 (0.600 to 0.800) |" in ours
    # each is worse by a tenth: the difference has no spread though the means have
    assert "**-0.100** (-0.100 to -0.100)" in plain
    assert "regret" not in rows[0]  # nowhere defined


def test_a_later_line_replaces_an_earlier_one_and_other_kinds_are_left_out(tmp_path):
    lines = [ranking_line("ours", "a", 0.6), {"kind": "run"}, ranking_line("ours", "a", 0.9)]
    found = ranking_table.read([_write(tmp_path / "x.jsonl", lines)])
    assert [line["pairwise"] for line in found["network"]["ours"].values()] == [0.9]


def test_tables_go_between_the_marks_of_a_page_and_nowhere_else():
    marks = ranking_table.MARKS
    page = f"before\n{marks.begin}\nold\n{marks.end}\nafter\n"
    new = marks.replaced(page, "new\n")
    assert new == f"before\n{marks.begin}\nnew\n{marks.end}\nafter\n"
    assert marks.replaced(new, "new") == new
    assert marks.between(new) == "new"
    turned = f"{marks.end}\n{marks.begin}\n"
    for wrong in ("a page without marks", turned, page + page):
        with pytest.raises(ValueError, match="ranking ends"):
            marks.replaced(wrong, "new\n")


def test_lines_of_the_offline_comparison_stand_in_for_missing_methods(tmp_path):
    program = hashlib.sha256(b"key").hexdigest()[:16]
    lines = [
        ranking_line("ours", "a", 0.6, program=program),
        ranking_line("plain", "a", 0.5, program=program),
    ]
    found = ranking_table.read([_write(tmp_path / "x.jsonl", lines)])["network"]
    other = {"kind": "offline", "top1": 0.4, "top5": 0.6, "pairs": 0.55, "tau": 0.1, "programs": 40}
    rows = [other | {"method": m, "workload_key": k} for m in ("stock", "plain") for k in ("key", "unknown")]
    ranking_table.add_offline(found, _write(tmp_path / "y.jsonl", rows))
    assert list(found) == ["ours", "plain", "stock"]
    assert found["plain"]["a"]["pairwise"] == 0.5  # its own line stays
    assert found["stock"]["a"]["pairwise"] == 0.55 and list(found["stock"]) == ["a"]


def _task(name, network, seed):
    rng = np.random.default_rng(seed)
    phi = rng.random((12, 106)).astype(np.float32)
    empty = np.zeros((12, 0), np.float32)
    return TaskInputs(
        key=name, program=name * 20, network=network, operator="dense", weight=1,
        seconds=1.0 + phi[:, 20].astype(np.float64), phi=phi, hardware=np.zeros(13, np.float32),
        initial=np.zeros(0, np.float32), predicted=empty, true=empty,
    )  # fmt: skip


def test_lines_are_of_workloads_held_out_and_an_undefined_number_is_null():
    tasks = [_task(f"w{n}", f"net{n % 3}", n) for n in range(6)]
    methods = ranking.Methods(ranking.argparse.Namespace(threads=1, data=None), tasks)
    seen = []

    def score(train, test):
        seen.append(({tasks[n].network for n in train}, {tasks[n].network for n in test}))
        return [-tasks[n].seconds for n in test]

    methods.score = lambda name: score
    found = ranking.lines(methods, "any", "network", 3)
    assert len(seen) == 3 and all(not train & test for train, test in seen)
    assert [line["group"] for line in found] == [task.key for task in tasks]
    assert all(line["pairwise"] == 1.0 and line["regret16"] is None for line in found)


def test_the_columns_of_actions_alone_hold_no_loop_nest():
    names = column_names(dim=0, state="none")
    kept = {names[n] for n in ranking._of_actions()}
    assert {"count_SP", "split_0", "h.avx512"} <= kept
    assert not {name for name in kept if name.startswith(("main_", "traffic_", "helper_", "consumer_"))}


def test_the_oracle_says_by_what_noise_it_is_no_better(tmp_path):
    root = write_toy(tmp_path / "toy", workloads=3, records=60)
    tasks = gather(Dataset(root), cache=tmp_path / "cache")
    methods = ranking.Methods(ranking.argparse.Namespace(threads=1, data=root), tasks)
    found = ranking.lines(methods, ranking.ORACLE, "network", 3)
    assert {(line["noise_of"], line["pairs_of_timings"] >= 20) for line in found} == {("repeats", True)}
    assert all(line["pairwise"] > 0.99 for line in found)  # the toy's repeats are equal
    few = write_toy(tmp_path / "few", workloads=3, records=1)
    alone = ranking.Methods(
        ranking.argparse.Namespace(threads=1, data=few), gather(Dataset(few), cache=tmp_path / "few.cache")
    )
    with pytest.raises(ValueError, match="too few timings"):
        ranking.lines(alone, ranking.ORACLE, "network", 3)
