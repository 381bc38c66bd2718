"""Lines of graphs as chosen: their ratios, and the table."""

from __future__ import annotations

import pytest

from benchmarks.runtimes.graph_choices import gains, main, table


def line(model: str, rules: list[float], chosen: list[float]) -> dict:
    return {
        "kind": "graph_model", "model": model, "changed": 3, "turns": {"rules": rules, "chosen": chosen},
        "rules": rules[1], "chosen": chosen[1], "compile_seconds": {"rules": 30.0, "chosen": 90.0},
    }  # fmt: skip


def test_a_gain_is_the_median_of_the_turns_ratios() -> None:
    lines = [line("a", [2e3, 3e3, 9e3], [1e3, 2e3, 9e3]), line("b", [1e3, 1e3, 1e3], [1e3, 2e3, 1e3])]
    assert gains([*lines, {"kind": "other"}]) == {"a": pytest.approx(1.5), "b": pytest.approx(1.0)}
    text = table(lines).markdown()
    assert "| a | 3.00 | 2.00 | 1.500 | 3 | 30 and 90 |" in text
    assert "1.225" in text  # the geometric mean


def test_turns_that_do_not_pair_are_an_error() -> None:
    with pytest.raises(ValueError):
        gains([line("a", [1.0, 2.0], [1.0, 2.0, 3.0])])


def test_without_a_folder_it_says_what_it_is_for(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "lines.jsonl")])
    assert "--folder is wanted" in capsys.readouterr().err
