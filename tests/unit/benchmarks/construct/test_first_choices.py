"""First choices over the best known: ratios, table, page, and that a kill costs no task."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from checkout import ROOT

from benchmarks.construct import run, table
from benchmarks.construct.variants import GENSOR, TODAY, VARIANTS
from benchmarks.plan import read_all
from benchmarks.scoreboard.first_choices import FIRST_CHOICES, LINES

FILE = f"benchmarks/results/{LINES}"
ABOUT = {"cpu": "a processor", "cores": 2, "rounds": 3, "seed": 1, "bundle": "x86-meta"}


def line(task: str, today: int | None, gensor: int, words: int = 2, **more) -> dict:
    """Three schedules of 1, 2 and 4 seconds, as the model ranks them: 1, 0, 2."""
    chosen = {TODAY: today, GENSOR[0]: gensor, GENSOR[1]: words}
    return {
        "kind": table.KIND,
        "task": task,
        "variants": {
            name: {"schedule": number, "core_seconds": 0.5, "why": ""} for name, number in chosen.items()
        },
        "pool": [1, 0, 2],
        "seconds": {"0": 1.0, "1": 2.0, "2": 4.0},
        "space_core_seconds": 0.25,
        "tvm_searches": "",
        **ABOUT,
        **more,
    }


OF = [line("a", 0, 0), line("a", 1, 2), line("b", 0, 2, tvm_searches="b is not searched in the model")]


def test_a_first_choice_over_the_best_known_by_the_last_line() -> None:
    assert table.over_best(OF, TODAY) == {"a": 2.0, "b": 1.0}
    assert table.over_best(OF, GENSOR[0]) == {"a": 4.0, "b": 4.0}
    assert table.over_best(OF, "draw-1024") == {}
    assert table.over_best([line("a", None, 0)], TODAY) == {}
    assert table.first_few_over_best(OF, 1) == {"a": 2.0, "b": 2.0}
    assert table.first_few_over_best(OF, 2) == {"a": 1.0, "b": 1.0}
    assert table.core_seconds(OF, TODAY) == 0.5 and math.isnan(table.core_seconds(OF, "draw-1024"))


def test_summary() -> None:
    found = {str(k): 2.0 ** (k / 10) for k in range(11)}
    mean, low, high, ninth, most = table.summary(found)
    assert mean == pytest.approx(2**0.5) and low < mean < high
    assert ninth == pytest.approx(2**0.9) and most == 2.0


def test_the_table_has_what_was_measured_and_says_what_it_is_of() -> None:
    block = table.block(OF, "FILE")
    assert "| evolution 2048x5 (today's) | **1.41** |" in block and "| 1.90 | 2.00 | 0.50 |" in block
    assert "draw 1024" not in block and "first 4, measured | **1.00**" in block
    assert "2 tasks; a processor, 2 cores" in block and "Above 1.3 with today's: a 2.00." in block
    assert "finds the schedules of b." in block
    short = table.block([*OF, line("c", None, 2)], "FILE")
    assert "**1.41** (2 of 3)" in short
    assert table.block([], "FILE") == table.NOT_YET


def test_the_page_has_the_table_of_the_committed_lines() -> None:
    path = ROOT / FILE
    made = table.block(read_all([path]) if path.is_file() else [], FILE)
    page = (ROOT / table.PAGE).read_text(encoding="utf-8")
    assert table.MARKS.between(page) == made.strip("\n"), (
        f"stale: python -m benchmarks.construct --out {FILE} --into {table.PAGE}"
    )


def test_figures(tmp_path: Path) -> None:
    (tmp_path / LINES).write_text("".join(json.dumps(one) + "\n" for one in OF))
    found = {one.name: one.measure(tmp_path) for one in FIRST_CHOICES}
    assert found["construct.first_over_best_geomean"].value == pytest.approx(2**0.5)
    assert found["construct.first_over_best_p90"].value == pytest.approx(1.9)
    assert found["construct.first_over_best_max"].value == 2.0
    assert found["construct.gensor_first_over_best_geomean"].value == pytest.approx(4.0)
    (tmp_path / LINES).write_text("")
    with pytest.raises(ValueError, match="no task has a first choice"):
        FIRST_CHOICES[0].measure(tmp_path)


def test_a_task_is_done_when_its_line_has_all_that_is_asked() -> None:
    asked = {"bundle": "x86-meta", "seed": 1, "rounds": 3}
    assert run.is_done(OF, "a", [TODAY, *GENSOR], asked)
    assert not run.is_done(OF, "a", [TODAY, "learned"], asked)
    assert not run.is_done(OF, "a", [TODAY], {**asked, "seed": 2})
    assert not run.is_done(OF, "c", [TODAY], asked)


def test_a_finished_file_is_printed_and_not_measured_again(tmp_path, capsys, monkeypatch) -> None:
    out = tmp_path / "lines.jsonl"
    out.write_text("".join(json.dumps(line(task, 0, 0)) + "\n" for task in ("softmax", "conv2d")))
    measured: list[str] = []
    monkeypatch.setattr(run, "_measure", lambda tasks, *rest: measured.extend(tasks))
    asked = ["--out", str(out), "--rounds", "3", "--variants", TODAY]
    assert run.main([*asked, "--tasks", "softmax,conv2d"]) == 0
    assert not measured and "2 tasks" in capsys.readouterr().out
    assert run.main([*asked, "--tasks", "softmax,ffn"]) == 0
    assert measured == ["ffn"]


def test_the_table_goes_into_a_page(tmp_path) -> None:
    out, page = tmp_path / "lines.jsonl", tmp_path / "page.md"
    out.write_text(json.dumps(line("softmax", 0, 0)) + "\n")
    page.write_text(f"before\n{table.MARKS.begin}\nold\n{table.MARKS.end}\nafter\n")
    assert run.main(["--out", str(out), "--into", str(page)]) == 0
    assert "old" not in page.read_text() and "1 tasks" in page.read_text()


def test_wrong_names_are_told(capsys) -> None:
    with pytest.raises(SystemExit):
        run.main(["--out", "x", "--tasks", "conv4d"])
    assert "no representative is called 'conv4d'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run.main(["--out", "x", "--variants", "best"])
    assert "no variant is called 'best'; there are draw-1024" in capsys.readouterr().err
    assert TODAY in VARIANTS and set(GENSOR) <= set(VARIANTS)
