"""phi of traces: columns that mean what they mean for AutoScheduler, and what the traces' own say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from trace_candidates import ANSOR, DATA, TARGETS, candidates, workload

from wmsched.base.errors import BundleError
from wmsched.features import trace_features as trace_module
from wmsched.features.hardware import hardware_features
from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.features.table import HARDWARE_NAMES
from wmsched.features.trace_features import TRACE_NAMES, trace_features
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.rows import RowBuilder, column_names
from wmsched.model.world_model import WorldModel
from wmsched.schedules.traces import steps_of
from wmsched.schedules.types import Workload

TILED = [
    ["GetSBlock", [], ["C", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
    ["Split", ["l1", "None", 4], [True, False], ["l4", "l5"]],
    ["Split", ["l2", "None", 16], [True, False], ["l6", "l7"]],
    ["Split", ["l3", "None", 8], [True, False], ["l8", "l9"]],
    ["Reorder", ["l4", "l6", "l8", "l9", "l5", "l7"], [], []],
    ["Fuse", ["l4", "l6"], [1], ["l10"]],
    ["Parallel", ["l10"], [], []],
    ["Vectorize", ["l7"], [], []],
    ["Annotate", ["l10", 64], ["pragma_auto_unroll_max_step"], []],
]


def test_one_schedule_has_one_phi_whichever_scheduler_wrote_it() -> None:
    mm = workload("llvm", "mm")
    ours, _, texts = trace_features([steps_of([TILED, []])], mm)
    theirs, words = features([ANSOR], mm)
    differ = {
        name: (a, b)
        for name, a, b in zip(FEATURE_NAMES, ours[0], theirs[0])
        if a != b and not (math.isnan(a) and math.isnan(b))
    }
    assert differ == {}
    assert len(texts[0]) == len(words[0]) == 8
    assert texts[0][:3] == words[0][:3]  # splits are worded alike too


@pytest.mark.parametrize(
    ("target", "name"), sorted({(c["target"], c["workload"]) for c in DATA["candidates"]})
)
def test_stock_candidates_have_finite_columns_and_differ(target: str, name: str) -> None:
    phi, extra, texts = trace_features(candidates(target, name), workload(target, name))
    assert phi.shape == (3, len(FEATURE_NAMES)) and extra.shape == (3, len(TRACE_NAMES))
    assert phi.dtype == extra.dtype == np.float32
    assert not np.isinf(phi).any() and not np.isinf(extra).any()
    known = phi[:, FEATURE_NAMES.index("iterations")]
    assert np.isfinite(known).all() and len(set(known)) == 1
    assert len({tuple(np.nan_to_num(row)) for row in np.hstack([phi, extra])}) > 1
    grid = extra[:, TRACE_NAMES.index("gpu_threads")]
    assert np.isfinite(grid).any() == (target == "cuda")
    assert np.isnan(extra[:, TRACE_NAMES.index("gpu_bandwidth")]).any() == (target != "cuda")
    assert [len(t) for t in texts] == [len(s) for s in candidates(target, name)]


def test_columns_say_what_the_programs_loops_do() -> None:
    def column(target: str, name: str, of: str) -> np.ndarray:
        phi, extra, _ = trace_features(candidates(target, name), workload(target, name))
        return np.hstack([phi, extra])[:, (*FEATURE_NAMES, *TRACE_NAMES).index(of)]

    loops = [dict(c["loops"]) for c in DATA["candidates"] if (c["target"], c["workload"]) == ("cuda", "conv")]
    nests = [nest["conv2d_nhwc_update"] for nest in loops]  # blockIdx, vthread, threadIdx, ...
    np.testing.assert_allclose(
        column("cuda", "conv", "gpu_blocks"), [math.log2(1 + n[0]) for n in nests], 1e-5
    )
    np.testing.assert_allclose(
        column("cuda", "conv", "gpu_threads"), [math.log2(1 + n[2]) for n in nests], 1e-5
    )
    assert (column("cuda", "conv", "cache_stages") == 2).all()
    assert (column("cuda", "mm16", "trace_tensorized") > 0).all()
    assert (column("llvm", "mm", "trace_decomposed") == 1).all()
    loops = [dict(c["loops"]) for c in DATA["candidates"] if (c["target"], c["workload"]) == ("llvm", "mm")]
    np.testing.assert_allclose(
        column("llvm", "mm", "parallel_max"), [math.log2(1 + nest["C_update"][0]) for nest in loops], 1e-5
    )


def test_candidates_taken_together_get_the_columns_that_each_gets_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for target, name in sorted({(c["target"], c["workload"]) for c in DATA["candidates"]}):
        some, of = candidates(target, name), workload(target, name)
        together, extra, _ = trace_features(some, of)
        with monkeypatch.context() as context:
            context.setattr(trace_module, "fits", lambda state: False)
            alone = trace_features(some, of)[0]
        np.testing.assert_allclose(together, alone, rtol=1e-6)
        phi, other, _ = trace_features(some, of, worded=False)
        np.testing.assert_array_equal(phi, together)
        np.testing.assert_array_equal(other, extra)


def test_without_the_program_there_is_still_a_phi() -> None:
    foreign = Workload("foreign", TARGETS["llvm"])
    phi, _, _ = trace_features(candidates("llvm", "mm"), foreign)
    assert np.isfinite(phi[:, FEATURE_NAMES.index("count_SP")]).all()
    assert np.isnan(phi[:, FEATURE_NAMES.index("iterations")]).all()
    assert trace_features([], foreign)[0].shape == (0, len(FEATURE_NAMES))


def test_schedules_without_a_step_get_the_columns_of_their_workload() -> None:
    builder, empty = RowBuilder(state="none"), np.zeros(0, np.float32)
    for key, traces in (('["tir","0",[2,2]]', True), ('["0123",[2,2]]', False)):
        plain = Workload(key, TARGETS["llvm"])
        rows = builder.rows(plain, empty, hardware_features(plain), [[]])
        assert rows.shape == (1, len(column_names(dim=0, state="none", traces=traces)))


def fitted(traces: bool) -> WorldModel:
    """A bundle's ranker without a state, trained on three candidates of one scheduler."""
    mm = workload("llvm", "mm")
    found = candidates("llvm", "mm") if traces else [ANSOR, ANSOR[:4], ANSOR[:6]]
    rows = RowBuilder(state="none").rows(mm, np.zeros(0, np.float32), hardware_features(mm), found)
    ranker = Ranker.fit([RankGroup("mm", rows, np.array([1.0, 2.0, 3.0]))], RankerConfig(rounds=3, threads=1))
    return WorldModel(ranker, state="none")


@pytest.mark.parametrize("traces", [True, False])
def test_a_bundle_of_before_a_column_was_added_goes_on_without_it(traces: bool, tmp_path: Path) -> None:
    """Trained by a library that had no column of the unrolled body: the same margins from today's rows."""
    mm = workload("llvm", "mm")
    found = candidates("llvm", "mm") if traces else [ANSOR, ANSOR[:4], ANSOR[:6]]
    today = column_names(dim=0, state="none", traces=traces)
    then = [name for name in today if not name.startswith("body_")]
    rows = RowBuilder(state="none").rows(mm, np.zeros(0, np.float32), hardware_features(mm), found)
    rows = rows[:, [today.index(name) for name in then]]
    ranker = Ranker.fit([RankGroup("mm", rows, np.array([1.0, 2.0, 3.0]))], RankerConfig(rounds=3, threads=1))
    WorldModel(ranker, state="none", columns=then).save_pretrained(tmp_path / "b")
    model = WorldModel.from_pretrained(tmp_path / "b")
    assert model.columns == then and len(then) < len(today) and model.traces is traces
    np.testing.assert_array_equal(model.task(mm, "").margins(found), ranker.margins(rows))
    other = [ANSOR, ANSOR[:4]] if traces else candidates("llvm", "mm")
    assert np.isfinite(model.task(mm, "").margins(other)).all()


@pytest.mark.parametrize("traces", [True, False])
def test_a_bundle_knows_its_scheduler_and_scores_the_others_candidates(traces: bool, tmp_path: Path) -> None:
    fitted(traces).save_pretrained(tmp_path / "b")
    model = WorldModel.from_pretrained(tmp_path / "b")
    assert model.traces is traces
    assert model.columns == column_names(dim=0, state="none", traces=traces)
    assert len(model.columns) == len(FEATURE_NAMES) + traces * len(TRACE_NAMES) + len(HARDWARE_NAMES)
    task = model.task(workload("llvm", "mm"), "")
    for batch in (candidates("llvm", "mm"), [ANSOR, ANSOR[:4]]):
        scores = task.score(batch)
        assert scores.shape == (len(batch),) and ((scores > 0) & (scores <= 1)).all()
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["features"] == model.columns
    config["features"] = [*config["features"][:-1], "h.unheard_of"]
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    with pytest.raises(BundleError, match=r"h\.unheard_of"):
        WorldModel.from_pretrained(tmp_path / "b")
