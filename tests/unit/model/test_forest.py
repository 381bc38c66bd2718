"""Trees in C++: XGBoost's margins to the last bit, whatever is missing, constant or has many thresholds."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost as xgb

from wmsched.model.bundles import find
from wmsched.model.ranker import FOREST_ROWS, Ranker
from wmsched.model.trees import forest as module
from wmsched.model.trees.forest import Forest, _library, forest_of


def rows_for(columns: int, count: int, *, varying: float = 0.6, missing: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(columns + count)
    rows = (rng.standard_normal((count, columns)) * np.exp2(rng.integers(-2, 10, columns))).astype(np.float32)
    rows[rng.random(rows.shape) < missing] = np.nan
    same = rng.random(columns) > varying
    rows[:, same] = rows[:1, same]
    return rows


def theirs(boosters, rows):
    return np.stack(
        [one.inplace_predict(rows, predict_type="margin", validate_features=False) for one in boosters]
    )


def trained(columns: int, *, rounds: int = 20, **parameters):
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((3000, columns)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    y = np.nansum(x[:, :3], axis=1) ** 2 + rng.standard_normal(len(x))
    parameters = {"objective": "reg:squarederror", "nthread": 1, "verbosity": 0} | parameters
    return xgb.train(parameters, xgb.DMatrix(x, label=y), num_boost_round=rounds)


@pytest.mark.parametrize("bundle", ["x86-meta", "cuda-meta", "x86-avx512"])
def test_shipped_rankers_have_the_margins_of_xgboost(bundle: str) -> None:
    boosters = Ranker.load(find(bundle)).boosters
    forest = Forest(_library(), boosters)
    for count, varying in ((1, 1.0), (127, 0.5), (300, 0.0), (300, 1.0)):
        rows = rows_for(forest.width, count, varying=varying)
        np.testing.assert_array_equal(forest.margins(rows), theirs(boosters, rows))


def test_values_at_a_threshold_fall_on_the_same_side() -> None:
    booster = trained(4)
    forest = Forest(_library(), [booster])
    cuts = booster.trees_to_dataframe()["Split"].dropna().to_numpy(np.float32)
    rows = np.stack([np.roll(cuts, k) for k in range(4)], axis=1)
    rows = np.concatenate(
        [rows, np.nextafter(rows, np.float32(-np.inf)), np.full_like(rows[:2], np.inf), -rows]
    )
    np.testing.assert_array_equal(forest.margins(np.ascontiguousarray(rows)), theirs([booster], rows))


def test_more_thresholds_than_a_byte_has_values() -> None:
    booster = trained(2, rounds=60, tree_method="exact", max_depth=8, min_child_weight=0.0)
    assert booster.trees_to_dataframe().groupby("Feature")["Split"].nunique().max() > 1000
    forest, rows = Forest(_library(), [booster]), rows_for(2, 900, varying=1.0)
    np.testing.assert_array_equal(forest.margins(rows), theirs([booster], rows))


def test_threads_change_nothing(monkeypatch) -> None:
    boosters = Ranker.load(find("x86-meta")).boosters
    forest = Forest(_library(), boosters)
    rows = rows_for(forest.width, 1500)
    expected = forest.margins(rows)
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    np.testing.assert_array_equal(forest.margins(rows), expected)


@pytest.mark.parametrize(
    "parameters",
    [
        {"rounds": 1, "max_depth": 20, "lambda": 0.0, "min_child_weight": 0.0},
        {"objective": "binary:logitraw"},
    ],
)
def test_trees_that_it_cannot_read_stay_xgboost_s(parameters, caplog) -> None:
    if "objective" in parameters:
        x = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
        booster = xgb.train(parameters, xgb.DMatrix(x, label=x[:, 0] > 0), num_boost_round=2)
    else:
        booster = trained(4, **parameters)
    assert forest_of([booster]) is None
    assert "XGBoost scores candidates" in caplog.text


def test_a_forest_that_differs_is_not_taken(monkeypatch, caplog) -> None:
    monkeypatch.setattr(Forest, "margins", lambda self, rows: np.zeros((1, len(rows)), np.float32))
    assert forest_of([trained(4)]) is None and "other margins" in caplog.text


def test_a_ranker_takes_it_after_some_rows_and_gives_the_same(monkeypatch) -> None:
    ranker, plain = Ranker.load(find("x86-meta")), Ranker.load(find("x86-meta"))
    rows = rows_for(ranker.width, FOREST_ROWS)
    monkeypatch.setattr(module, "_library", lambda: None)
    expected = plain.judged(rows)
    monkeypatch.undo()
    ranker.margins(rows[:10])
    assert ranker._forest is None
    found = ranker.judged(rows)
    assert ranker._forest is not None and plain._forest is None
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(ranker.margins(rows), expected[0])


def test_without_a_compiler_xgboost_scores(monkeypatch, caplog, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    module._library.cache_clear()
    try:
        assert forest_of([trained(4)]) is None and "could not be compiled" in caplog.text
    finally:
        module._library.cache_clear()


def test_rows_of_other_shapes_are_refused() -> None:
    forest = Forest(_library(), [trained(4)])
    for rows in (np.zeros((3, 5), np.float32), np.zeros((3, 4)), np.zeros((4, 3), np.float32).T):
        with pytest.raises(ValueError, match="the trees read 4 columns"):
            forest.margins(rows)
    assert forest.margins(np.zeros((0, 4), np.float32)).shape == (1, 0)
