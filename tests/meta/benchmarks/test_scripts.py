"""A script in the benchmark: `tune_tir` with its defaults, and its best measured again as it was built."""

from __future__ import annotations

from dataclasses import asdict

import programs as P
import pytest

from benchmarks.methods import Settings, module
from benchmarks.tune.meta import remeasure, tuning
from wmsched import zoo

# Each of stock's builders imports all of TVM's intrinsics: 20 s of a processor, of the 30 a build may take.
STOCK = pytest.param("meta-xgb-script", marks=pytest.mark.slow)


@pytest.mark.parametrize("method", [STOCK, "meta-wmsched-script"])
def test_a_script_is_called_with_its_defaults(method, tmp_path) -> None:
    P.fresh_loggers()
    (row,) = zoo.find("gpt2/8")
    spec = {
        "row": row,
        "target": "",
        "method": method,
        "seed": 0,
        "budget": 4,
        "round_size": 64,
        "log": str(tmp_path / "log.json"),
        "settings": asdict(Settings(bundle="x86-meta")),
    }
    found = tuning.tune(spec)
    if "Timeout, killed" in found.get("error", "") and method == "meta-xgb-script":
        pytest.skip("each of TVM's builders reads its tensor intrinsics first; here that takes over its 30 s")
    assert (found["status"], found["trials"], found["failed"]) == ("ok", 4, 0)
    how = module(method).HOW
    assert {name: found[name] for name in how} == how
    again = remeasure.remeasure(
        spec | {"records": [found["best_record"]] * 2, "rounds": 1, "vector_math": [False, True]}
    )
    assert again["status"] == "ok"
    assert all(0 < entry["median"] < 1e-3 for entry in again["entries"])
