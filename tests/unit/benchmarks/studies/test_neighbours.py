"""What lies near a search's choice: which schedules are varied and chosen, and what is said of times."""

import json
import math
import random
from math import prod
from pathlib import Path

import pytest

from benchmarks.studies.neighbours import INNERMOST, choose, lengths, main, summary, variations
from wmsched.base.errors import WmschedError

STEPS = [
    ["SP", 2, 0, 128, [16, 1, 8], 1],
    ["SP", 2, 4, 768, [6], 1],
    ["FSP", 3, 0, 0, 2],
    ["PR", 2, 0, "auto_unroll_max_step$512"],
    ["AN", 2, 9, 2],
]


def test_lengths_divide_the_loop_and_the_innermost_is_limited() -> None:
    found = lengths(128, 3)
    assert [16, 1, 8] in found and [1, 1, 1] in found and [1, 2, 64] in found
    assert all(128 % prod(each) == 0 and each[-1] <= INNERMOST for each in found)
    assert len({tuple(each) for each in found}) == len(found)


def test_variations_keep_the_structure_and_none_is_the_choice_itself() -> None:
    found = [steps for steps, _ in zip(variations(STEPS, random.Random(0)), range(200))]
    assert len({json.dumps(steps) for steps in found}) == 200 and STEPS not in found
    for steps in found:
        assert [step[0] for step in steps] == [step[0] for step in STEPS]
        assert steps[2] == STEPS[2] and steps[4] == STEPS[4]
        assert 128 % prod(steps[0][4]) == 0 and 768 % prod(steps[1][4]) == 0
    assert len({steps[3][3] for steps in found}) == 4
    assert STEPS[0][4] == [16, 1, 8]  # what it was given stays as it was


def test_variations_end_where_there_are_no_more() -> None:
    few = [["SP", 2, 0, 4, [2], 1]]
    assert sorted(steps[0][4] for steps in variations(few, random.Random(0))) == [[1], [4]]


def test_half_are_the_first_and_none_is_chosen_twice() -> None:
    order = list(range(100, 0, -1))
    found = choose(order, 20, random.Random(0))
    assert found[:10] == order[:10] and len(set(found)) == 20 and min(found[10:]) < 50
    assert sorted(choose([3, 1, 2], 20, random.Random(0))) == [1, 2, 3]


def test_what_is_said_of_the_times() -> None:
    said = summary([2.0, 2.2], [(1, 2.5), (7, 1.5), (9, math.inf), (20, 3.0)])
    assert said["gain"] == pytest.approx(1.4) and said["place"] == 7 and said["faster"] == 1
    assert said["spearman"] == pytest.approx(0.5)
    with pytest.raises(WmschedError, match="1 of 2 neighbours"):
        summary([2.0, 2.0], [(1, math.inf), (2, 1.0)])


def test_a_task_without_a_run_is_named(tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    fields = {"kind": "run", "task": "a", "method": "wmsched", "budget": 16, "round_size": 16, "seed": 0}
    runs.write_text(json.dumps(fields | {"status": "ok", "best_seconds": 1.0, "best_record": ""}) + "\n")
    with pytest.raises(WmschedError, match="no finished run of wmsched on b"):
        main([str(runs), "--tasks", "a,b", "--method", "wmsched", "--out", str(tmp_path / "out.jsonl")])
