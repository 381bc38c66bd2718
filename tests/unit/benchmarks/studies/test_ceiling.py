"""What the core allows: the bound's arithmetic, and its table beside made-up runs."""

import json

import pytest
from result_lines import run_line

from benchmarks.outcomes.outcomes import Outcomes
from benchmarks.plan import read
from benchmarks.report import report
from benchmarks.studies import ceiling, peak

PEAK = {
    "kind": "peak",
    "status": "ok",
    "gflops": 100.0,
    "bandwidth": [[1 << 14, 200.0], [1 << 20, 50.0], [1 << 24, 80.0], [1 << 26, 10.0]],
    "flushed": 20.0,
    "threads": 1,
}
SHAPES = '["f1e2", [1, 128], [64, 128], [1, 64]]'


def test_arithmetic_or_memory_whichever_takes_longer():
    assert ceiling.seconds(1e9, 1 << 10, PEAK) == pytest.approx(0.01)
    assert ceiling.seconds(0, 64 << 20, PEAK) == pytest.approx((64 << 20) / 10e9)
    # No smaller than the least size measured; a larger array read faster says the cache can do that too.
    assert ceiling.seconds(0, 1 << 10, PEAK) == pytest.approx((1 << 10) / 200e9)
    assert ceiling.seconds(0, 2 << 20, PEAK) == pytest.approx((2 << 20) / 80e9)
    # What was flushed comes at the rate of such, however small; the rest need not wait for it.
    assert ceiling.seconds(0, 2 << 20, PEAK, flushed=1 << 20) == pytest.approx((1 << 20) / 20e9)
    assert ceiling.seconds(0, 2 << 20, PEAK, flushed=1 << 10) == pytest.approx((2 << 20) / 80e9)


def test_bytes_are_those_of_the_key_s_shapes():
    assert ceiling.tensor_bytes(SHAPES) == [4 * 128, 4 * 64 * 128, 4 * 64]
    assert ceiling.tensor_bytes('["f1e2", [], 3]') == [4]


def lines():
    """A dense layer at a tenth and half of the peak, a softmax known to take 2 s at best."""
    about = {"flop_ct": 1e11, "workload_key": SHAPES, "budget": 64}
    dense = about | {"type": "ffn"}
    softmax = about | {"type": "softmax"}
    return [
        run_line("bert-base/0", "ansor", 10.0, **dense),
        run_line("bert-base/0", "wmsched", 2.0, **dense),
        run_line("opt-1.3b-attention/3", "ansor", 3.0, **softmax),
        run_line("opt-1.3b-attention/3", "wmsched", 2.0, **softmax),
        run_line("opt-1.3b-attention/3", "meta-xgb", 0.5, **softmax),
    ]


def test_table_of_a_search():
    (table,) = ceiling.tables(Outcomes([*lines(), PEAK]))
    assert table.head[3:] == ["best known beside ansor", "ansor, 64 trials", "wmsched, 64 trials"]
    assert [row[3:] for row in table.rows] == [
        ["2.00", "10.00", "2.00"],
        ["1.00", "1.50", "1.00"],
        ["**1.41**", "**3.87**", "**1.41**"],
    ]
    assert table.rows[1][2] == "2000 (best known)"
    assert "100 GFLOP/s" in table.note
    assert "200 to 10 GB/s" in table.note and "20 GB/s of what was flushed" in table.note
    assert not ceiling.tables(Outcomes(lines()))


def test_a_model_s_weighted_latency_over_that_of_its_tasks_least():
    about = {"flop_ct": 1e11, "workload_key": SHAPES, "budget": 64}  # a second at the peak
    made = [
        run_line(f"opt-1.3b-attention/{task}", method, seconds, type=kind, **about)
        for task, kind in enumerate(("attention-projection", "attention-qk", "", "softmax"))
        for method, seconds in (("ansor", 4.0), ("wmsched", 2.0))
    ]
    (table,) = ceiling.models(Outcomes([*made, PEAK]))
    assert table.head[1:] == ["least, ms", "ansor, 64 trials", "wmsched, 64 trials"]
    # weights 4, 1, 1 at a second each, and the softmax's best known, 2 s
    assert table.rows == [
        ["opt-1.3b-attention", "8000", "3.50", "1.75"],
        ["**geometric mean**", "", "**3.50**", "**1.75**"],
    ]
    assert ceiling.models(Outcomes(made)) == []  # no peak
    assert ceiling.models(Outcomes([*made[2:], PEAK])) == []  # a task lacks
    assert "What the core allows: weighted model latency" in report.markdown([*made, PEAK])


def test_what_autoscheduler_flushes_comes_from_the_memory_and_metaschedule_flushes_nothing():
    about = {"type": "ffn", "flop_ct": 1.0, "workload_key": '["f1e2", [5, 1000], [1000, 1000], [5, 1000]]'}
    of = [
        run_line("bert-base/0", method, 1.0, **about)
        for method in ("ansor", "wmsched", "meta-xgb", "meta-wmsched")
    ]
    ansor, meta = ceiling.tables(Outcomes([*of, PEAK]))
    assert ansor.rows[0][2] == f"{4 * (1000 * 1000 + 5000) / 20e9 * 1e3:.4g}"
    assert meta.rows[0][2] == f"{4 * (1000 * 1000 + 10000) / 80e9 * 1e3:.4g}"


def test_summary_has_the_means():
    (table,) = ceiling.summary(Outcomes([*lines(), PEAK]))
    assert table.rows == [
        ["best known beside ansor", "**1.41**"],
        ["ansor, 64 trials", "**3.87**"],
        ["wmsched, 64 trials", "**1.41**"],
    ]
    assert not ceiling.summary(Outcomes(lines()))


def test_report_has_it(tmp_path, capsys):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines(), PEAK]))
    assert len(list(read(path))) == 6
    assert report.main([str(path)]) == 0
    assert "What the core allows: ansor" in capsys.readouterr().out


def test_a_failed_measurement_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peak.child, "call", lambda *_, **__: {"status": "error", "error": "no such target"})
    assert peak.main(["--out", str(tmp_path / "peak.jsonl")]) == 1
    assert "no such target" in capsys.readouterr().err
    assert not (tmp_path / "peak.jsonl").exists()
