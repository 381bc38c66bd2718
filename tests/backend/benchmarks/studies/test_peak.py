"""The ceiling's measurement with TVM, in small."""

from benchmarks.studies import ceiling, peak


def test_rates_are_measured(monkeypatch):
    monkeypatch.setattr(peak, "ROWS", (4, 6))
    monkeypatch.setattr(peak, "VECTORS", (2,))
    monkeypatch.setattr(peak, "SIZES", (1 << 14, 1 << 24))
    monkeypatch.setattr(peak, "FLUSHED", (1 << 20,))
    monkeypatch.setattr(peak, "STREAMS", (1, 4))
    monkeypatch.setattr(peak, "REPEATS", 3)
    found = peak.measure({"target": ""})
    assert found["gflops"] > 1
    assert found["block"] in [(4, 32), (6, 32)]
    assert [size for size, _ in found["bandwidth"]] == [1 << 14, 1 << 24]
    assert all(rate > 0.1 for _, rate in found["bandwidth"])
    assert found["flushed"] > 0.1
    assert ceiling.seconds(1e9, 1 << 14, found) > 0
