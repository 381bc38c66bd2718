"""The page of a model's report: its numbers are those of the JSON, and it needs nothing but itself."""

from __future__ import annotations

import html.parser
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import reports
from rich.console import Console

from wmsched.measure.roofline import Roofline
from wmsched.report.charts import curve_chart, roofline_chart
from wmsched.report.history import curve, left_alone, read_records
from wmsched.report.limits import limits_of, spent_on
from wmsched.report.page import page
from wmsched.report.profiler import Profile, Row
from wmsched.report.text import disturbed, print_report


class _Cells(html.parser.HTMLParser):
    """Values and texts of the table of functions, by row; and what is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[dict[str, str | None], str]]] = []
        self.inside: tuple[dict[str, str | None], str] | None = None
        self.json, self.in_json = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.inside = (found, "")
        self.in_json = tag == "script" and found.get("id") == "report"

    def handle_data(self, data: str) -> None:
        if self.inside is not None:
            self.inside = (self.inside[0], self.inside[1] + data)
        if self.in_json:
            self.json += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self.inside is not None:
            self.rows[-1].append(self.inside)
            self.inside = None


def test_numbers_of_the_table_are_those_of_the_json() -> None:
    found = reports.report()
    cells = _Cells(page(found))
    assert json.loads(cells.json) == found
    assert len(cells.rows) == 1 + len(found["functions"])
    for row, shown in zip(found["functions"], cells.rows[1:], strict=True):
        assert shown[0][0]["data-v"] == row["what"] and row["name"] in shown[0][1]
        values = {one["data-k"]: (one["data-v"], text) for one, text in shown if one.get("data-k")}
        for key in ("seconds", "share", "calls", "warm", "gflops", "gbs"):
            value, text = values[key]
            assert value == ("" if row[key] is None else repr(row[key]))
            assert (text == "-") == (row[key] is None)
        assert values["seconds"][1] == f"{1e3 * row['seconds']:.3f}"
        assert float(values["call"][0] or "nan") == row["seconds"] / row["calls"]
        limit = row["limit"]["seconds"]
        assert values["limit"][1] == f"{1e6 * limit / row['calls']:.1f}"


def test_the_page_tells_before_and_after_the_search_and_what_was_left() -> None:
    text = page(reports.report())
    for part in ("4 ms", "10 ms", "2.50", "32 trials, of which 1 failed", "240 GFLOP/s", "schedule by rule"):
        assert part in text, part
    assert text.count('class="chart"') == 2 and "net &amp; co.onnx" in text
    assert "Operations are not known" not in text and "class=warn" not in text


def test_names_of_a_model_are_text_and_not_markup() -> None:
    text = page(reports.report(why_unknown="<script>alert(1)</script>"))
    assert "&lt;script&gt;alert(1)" in text
    assert "sort &lt;b&gt;" in text and "sort&lt;&amp;&gt;" in text
    assert text.count("<script") == text.count("</script") == 2


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(reports.report())
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|https?:|fetch\(""", text)
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text


def test_a_construction_without_a_roofline_has_a_page_too() -> None:
    machine = {"threads": 2, "gflops": None, "int8": None, "bandwidth": [], "handover": None, "memory": None}
    search = {"trials": 0, "failed": 0, "seconds": 0.0, "construct_seconds": 20.0, "curve": []}
    compared = {"seconds": {"wmsched": 4e-3, "onnxruntime": 5e-3}, "missing": {"PyTorch eager": "no <such>"}}
    found = reports.report(machine=machine, search=search, constructed=True, compared=compared, left=[])
    text = page(found | {"then": {"tuned": 4e-3}, "why_unknown": "the file has gone"})
    for part in ("Not known here", "No search", "They took 20 s", "now, in turns", "no &lt;such&gt;"):
        assert part in text, part
    assert "Operations are not known: the file has gone." in text


def test_a_disturbed_machine_is_said() -> None:
    found = reports.report()
    assert not disturbed(found)
    slow = found | {"profile": found["profile"] | {"measured": 8e-3}}
    assert "2.0 times as long as its parts" in disturbed(slow) and "class=warn" in page(slow)
    assert "2.0 times as long as when it was built" in disturbed(found | {"then": {"tuned": 2e-3}})


def test_the_terminal_shows_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(Console(width=200), reports.report(), most=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["50.0", "%", "2.000", "2", "1000.0"] and "3x3 convolution" in lines[1]
    assert "and 1 more: 0.500 ms" in lines and any("waits for: code 3.250 ms" in line for line in lines)


MACHINE = Roofline(
    threads=2, gflops=100.0, bandwidth=((1 << 10, 200.0), (1 << 20, 50.0), (1 << 24, 60.0)), handover=1e-6
)


def limit_of(**settings: Any) -> tuple[Any, Row]:
    row = Row(
        **({"name": "f", "what": "f", "calls": 1, "weights": 0.0, "flops": 1e6, "bytes": 1e3} | settings)
    )
    return limits_of(Profile(rows=[row], seconds=1.0, memory=1 << 24), MACHINE)[0], row


def test_a_function_waits_for_what_takes_half_of_its_time() -> None:
    limit, _ = limit_of(seconds=15e-6)
    assert limit.compute == pytest.approx(10e-6) and limit.waits == "compute"
    assert limit_of(seconds=50e-6)[0].waits == "code"
    assert limit_of(seconds=50e-6, warm=20e-6)[0].waits == "memory"  # what the caches show
    assert limit_of(seconds=3e-6, flops=0.0, loops=2, shared=2)[0].waits == "launch"
    assert limit_of(seconds=1.0, flops=math.nan)[0].waits == "unknown"
    limit, row = limit_of(seconds=40e-6, flops=0.0, bytes=1.2e6, weights=1.2e6)
    assert limit.memory == pytest.approx(1.2e6 / 60e9) and limit.waits == "memory"
    assert spent_on([row], [limit]) == {"memory": 40e-6}


def test_memory_is_as_quick_as_the_set_is_small() -> None:
    assert MACHINE.gbs(1) == 200.0 and MACHINE.gbs(1 << 30) == 60.0
    assert MACHINE.gbs(1 << 20) == 60.0  # a larger set is never the quicker one
    assert 60.0 < MACHINE.gbs(1 << 15) < 200.0
    assert math.isnan(Roofline(threads=1).gbs(1))


def test_the_curve_adds_up_what_the_model_calls(tmp_path: Path) -> None:
    lines = [(0, [4.0]), (1, [3.0]), (0, [1e10]), (0, [2.0]), (1, None), (1, [5.0])]
    (tmp_path / "database_tuning_record.json").write_text(
        "".join(json.dumps([program, [[], seconds, {}, []]]) + "\n" for program, seconds in lines) + "[1, [["
    )
    records = read_records(tmp_path)
    assert len(records) == 6 and math.isnan(records[2][1]) and math.isnan(records[4][1])
    tasks = [
        {"name": "a", "weight": 3, "trials": 3, "failed": 1, "seconds": 2.0},
        {"name": "b", "weight": 1, "trials": 3, "failed": 1, "seconds": 3.0},
        {"name": "c", "weight": 1, "trials": 2, "failed": 2, "seconds": None, "how": "constructed"},
        {"name": "d", "weight": 1, "trials": 0, "failed": 0, "seconds": None, "how": "by rule"},
    ]
    assert curve(records, tasks) == [(2, 15.0), (4, 9.0), (6, 9.0)]
    left = left_alone({"tasks": tasks})
    assert [one["name"] for one in left] == ["c", "d"] and "all of its 2 trials failed" in left[0]["why"]
    assert read_records(tmp_path / "none") == [] == curve([], tasks)


def test_a_roof_does_not_rise_above_the_peak() -> None:
    """Where all functions have many operations a byte, the memory's line is outside of the chart."""
    text = roofline_chart(reports.report())
    lines = re.findall(r'<polyline class="roof[^"]*" points="([^"]*)"', text)
    heights = [float(point.split(",")[1]) for line in lines for point in line.split()]
    assert len(lines) == 2 and len(set(heights)) == 1
    found = reports.report()
    sparse = [row | {"flops": 1e3, "gflops": 1.0} for row in found["functions"]]
    (memory, *_) = re.findall(r'points="([^"]*)"', roofline_chart(found | {"functions": sparse}))
    points = [tuple(map(float, point.split(","))) for point in memory.split()]
    assert points[0][1] > points[1][1] == points[2][1] and points[0][0] < points[1][0] < points[2][0]
    assert curve_chart([]) == curve_chart([(1, 2.0)]) == ""
