"""The table of whole models, and that a page has it as the committed lines give it."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT

from benchmarks.models import tuned_models
from benchmarks.models.tuned_models import ALONE, BUILDS, KIND, TUNED, UNTUNED
from wmsched.base.errors import WmschedError


def line(model: str, tuned: float, *, cpu: str = "Some CPU", **others: float) -> dict:
    seconds = dict.fromkeys(BUILDS, 2.0) | others | {TUNED: tuned}
    more = {"cpu": cpu, "threads": 1, "trials": 32, "status": "ok"}
    return {"kind": KIND, "model": model, "seconds": seconds, "difference": {TUNED: 1e-6}, **more}


def test_the_last_line_of_a_model_counts_and_the_mean_is_over_models():
    found = tuned_models.table([line("a", 9.0), line("b", 0.5), line("a", 2.0, eager=4.0)])
    assert found.rows[0] == ["a (32 trials)", "2000.00", "4000.00", *["2000.00"] * 4, "1e-06"]
    assert found.rows[2][1:] == ["**2.00**", "**2.83**", *["**2.00**"] * 3, "**1.00**", ""]
    assert found.title == "Whole models on Some CPU, 1 thread, ms"


def test_a_build_that_a_line_lacks_is_left_out():
    older = line("a", 1.0)
    del older["seconds"][ALONE]
    found = tuned_models.table([older, line("b", 1.0)])
    assert ALONE not in found.head and len(found.rows[0]) == len(found.head) == len(BUILDS) + 1


def test_models_of_two_processors_make_no_table():
    with pytest.raises(WmschedError, match="Other CPU on 1 threads and Some CPU on 1 threads"):
        tuned_models.table([line("a", 1.0), line("b", 1.0, cpu="Other CPU")])
    with pytest.raises(WmschedError, match="no model"):
        tuned_models.table([])


@pytest.mark.parametrize(
    "name, page",
    [
        ("models", "docs/explanation/results.md"),
        ("xeon-models", "docs/explanation/results.md"),
        ("one-thread-models", "docs/explanation/results.md"),
    ],
)
def test_the_pages_have_the_tables_of_the_committed_lines(name, page):
    text = tuned_models.marks(name).between((ROOT / page).read_text(encoding="utf-8"))
    named = re.search(r"tuned_models --out (\S+)( --short)?`", text)
    assert named
    assert text == tuned_models.block(ROOT / named.group(1), named.group(1), short=bool(named.group(2)))


def test_a_short_table_is_without_what_brings_how_much():
    found = tuned_models.table([line("a", 1.0)], tuned_models.SHORT)
    assert found.head == ["model", UNTUNED, "eager", "torch.compile", TUNED, "off by"]
