"""``wmsched eval``: folds, intervals, the noise ceiling, the checks of E and F, and the whole command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from toy_records import ToyRecords, tiny_model

from wmsched.base.errors import DatasetError
from wmsched.learn.data import inputs
from wmsched.learn.data.inputs import VARIANTS, TaskInputs, cache_of, gather
from wmsched.learn.data.operators import operator
from wmsched.learn.evaluate import evaluate, states
from wmsched.learn.evaluate.cross_validation import boosted, deal, out_of_fold
from wmsched.learn.evaluate.noise_ceiling import ceiling, deviation, equal_features, estimate_noise, repeats
from wmsched.learn.evaluate.quality import estimate, qualities, random_qualities, workload_quality
from wmsched.learn.evaluate.report import markdown
from wmsched.learn.evaluate.states import terminal_retrieval, terminal_shape
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import RankerConfig
from wmsched.model.rows import column_names
from wmsched.schedules.types import Access, Iter, Stage, Workload

SMALL = RankerConfig(objective="reg:squarederror", rounds=30, depth=3, threads=1, learning_rate=0.2)


def task(seed: int = 0, *, n: int = 20, dim: int = 4, network: str = "net") -> TaskInputs:
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, dim)).astype(np.float32)
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    return TaskInputs(
        key=f"w{seed}", program=f"p{seed}", network=network, operator="dense", weight=1,
        seconds=rng.lognormal(size=n), phi=rng.normal(size=(n, 3)).astype(np.float32),
        hardware=np.zeros(2, np.float32), initial=true[0], predicted=true.copy(), true=true,
    )  # fmt: skip


def groups_of(*networks: str) -> list[RankGroup]:
    return [
        RankGroup(f"w{k}", np.zeros((2, 1), np.float32), np.ones(2), name) for k, name in enumerate(networks)
    ]


def test_folds_keep_networks_or_workloads_together() -> None:
    groups = groups_of("a", "a", "a", "b", "c", "c", "d")
    for by in ("network", "workload"):
        parts = deal(groups, folds=3, by=by)
        assert sorted(n for part in parts for n in part) == list(range(7)) and len(parts) == 3
        assert parts == deal(groups, folds=3, by=by)
    where = {n: k for k, part in enumerate(deal(groups, folds=3)) for n in part}
    assert where[0] == where[1] == where[2] and where[4] == where[5]
    assert max(map(len, deal(groups, folds=3, by="workload"))) == 3  # evenly, whatever the networks
    twice = [*groups, groups[0]]  # the same workload on a second machine goes where the first went
    where = {n: k for k, part in enumerate(deal(twice, folds=4, by="workload")) for n in part}
    assert where[0] == where[7]
    with pytest.raises(DatasetError, match="2 networks in 5 folds"):
        deal(groups_of("a", "a", "b"), folds=5)
    with pytest.raises(ValueError, match="by='file'"):
        deal(groups, folds=3, by="file")


def test_a_program_of_two_machines_stays_in_one_fold_whatever_networks_it_is_of() -> None:
    groups = groups_of("a", "b", "c", "d")
    groups += [dataclasses.replace(groups[0], network="e"), dataclasses.replace(groups[1], network="")]
    where = {n: k for k, part in enumerate(deal(groups, folds=3)) for n in part}
    assert where[0] == where[4] and where[1] == where[5] and len(set(where.values())) == 3


def test_rows_lie_beside_a_dataset_that_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ds").mkdir()
    monkeypatch.chdir(tmp_path / "ds")
    assert cache_of(Path()) == tmp_path.resolve() / "ds.eval" == cache_of(tmp_path / "ds").resolve()
    assert cache_of(Path("..")) == tmp_path.resolve().with_name(f"{tmp_path.resolve().name}.eval")
    assert evaluate.embeddings_of(Path(), tmp_path / "cache") == tmp_path / "cache"


def test_no_group_is_scored_by_a_ranker_that_saw_it() -> None:
    groups = groups_of("a", "a", "b", "c", "d", "d")

    class Spy:
        def __init__(self, seen) -> None:
            self.seen = {group.network for group in seen}

    class Ranker(Spy):
        def margins(self, rows):
            assert self.now not in self.seen
            return np.zeros(len(rows), np.float32)

    fitted = []

    def fit(train, stop):
        assert train and stop and not {g.network for g in train} & {g.network for g in stop}
        fitted.append(Ranker([*train, *stop]))
        held = {g.network for g in groups} - fitted[-1].seen
        assert len(held) >= 1
        fitted[-1].now = next(iter(held))
        return fitted[-1]

    assert len(out_of_fold(groups, fit, folds=4)) == len(groups) and len(fitted) == 4


def test_trees_learn_across_folds_and_noise_columns_do_not() -> None:
    rng, groups = np.random.default_rng(0), []
    for k in range(8):
        rows = rng.normal(size=(30, 4)).astype(np.float32)
        groups.append(RankGroup(f"w{k}", rows, np.exp(rows[:, 0].astype(float)), f"net{k // 2}"))
    seconds = [group.seconds for group in groups]
    good = qualities(out_of_fold(groups, boosted(SMALL), folds=4), seconds)
    blind = [dataclasses.replace(group, rows=group.rows[:, 1:]) for group in groups]
    bad = qualities(out_of_fold(blind, boosted(SMALL), folds=4), seconds)
    assert good["pairwise"].mean() > 0.8 > 0.6 > bad["pairwise"].mean()


def test_quality_of_one_workload() -> None:
    seconds = np.r_[np.linspace(1, 2, 19), np.nan]
    perfect = workload_quality(-np.nan_to_num(seconds, nan=9), seconds)
    assert perfect["top1"] == perfect["pairwise"] == 1 and perfect["tau"] == pytest.approx(1)
    assert perfect["regret16"] == 0 and np.isnan(perfect["regret64"])  # 64 of 20 are no choice
    worst = workload_quality(np.arange(20.0), seconds)
    assert worst["top1"] == 0 and worst["pairwise"] == 0 and worst["regret16"] == pytest.approx(4 / 18)
    failed = workload_quality(np.r_[-1.0, np.zeros(20)], np.r_[1.0, np.full(20, np.nan)])
    assert np.isnan(failed["top1"])  # one measured program cannot be ranked
    middle = random_qualities([seconds[:19]] * 5)
    assert 0.4 < middle["pairwise"].mean() < 0.6


def test_intervals_hold_the_mean_and_shrink_with_the_data() -> None:
    rng = np.random.default_rng(1)
    few, many = (estimate(rng.normal(size=n)) for n in (20, 2000))
    for found in (few, many):
        assert found.low < found.mean < found.high
    assert many.high - many.low < 0.2 * (few.high - few.low)
    assert many.high - many.low == pytest.approx(2 * 1.96 / 2000**0.5, rel=0.15)
    assert estimate(np.array([np.nan, 2.0])).workloads == 1
    assert estimate(np.array([np.nan])).text() == "-"


def test_the_noise_is_found_again_and_sets_the_ceiling() -> None:
    rng = np.random.default_rng(0)
    assert deviation(rng.normal(0, 0.05 * 2**0.5, 4000)) == pytest.approx(0.05, rel=0.06)
    tasks = [task(k, n=30) for k in range(6)]
    close, far = (ceiling(tasks, sigma) for sigma in (0.001, 0.5))
    assert close["top1"].mean > 0.99 and close["pairwise"].mean > 0.99
    assert far["top1"].mean < close["top1"].mean and 0.5 < far["pairwise"].mean < 0.9
    same = dataclasses.replace(tasks[0], phi=np.zeros((30, 3), np.float32))
    assert len(equal_features([same])) == 29 and len(equal_features(tasks)) == 0


def test_repeated_timings_are_found(tmp_path: Path) -> None:
    data = ToyRecords(tmp_path)
    assert len(repeats(data)) == 0
    again = data.workloads()[0].id
    data._trajectories[again] = data._trajectories[again] * 2
    assert len(repeats(data)) == 23 and not repeats(data).any()  # one of 24 failed
    tasks = gather(data)
    assert estimate_noise(data, tasks).source == "repeats"


def test_operators_are_told_apart() -> None:
    def conv(*dims) -> Workload:
        iters = tuple(
            Iter(name, 8, kind) for name, kind in (("c", "S"), ("h", "S"), ("rc", "R"), ("rh", "R"))
        )
        stage = Stage("C", "compute", iters, (Access(0, dims, (8, 8)),), (), (8, 8))
        return Workload("k", stages=(stage,), desc="vm_mod_fused_nn_conv2d_add_clip_4")

    full = conv(((2, 1),), ((1, 1), (3, 1)))
    assert operator(full) == "conv2d"
    depth = conv(((0, 1),), ((1, 1), (3, 1)))
    stage = dataclasses.replace(
        depth.stages[0], iters=(*depth.stages[0].iters[:2], Iter("rc", 1, "R"), depth.stages[0].iters[3])
    )
    assert operator(dataclasses.replace(depth, stages=(stage,))) == "depthwise conv2d"
    for desc, kind in (
        ("vm_mod_fused_nn_contrib_conv2d_NCHWc_add_nn_relu_12", "conv2d NCHWc"),
        ("vm_mod_fused_nn_global_avg_pool2d", "pooling"),
        ("vm_mod_fused_nn_batch_matmul_divide_add", "batch matmul"),
        ("vm_mod_fused_multiply_mean_1,vm_mod_fused_multiply_mean", "mean"),
        ("vm_mod_fused_add", "other"),
        ("", "unknown"),
    ):
        assert operator(Workload("k", desc=desc)) == kind


def test_collapse_and_retrieval_are_seen() -> None:
    tasks = [task(k, dim=6) for k in range(5)]
    found = terminal_shape(tasks)
    assert 5 < found["effective_rank"] <= 6 and found["states"] == 100
    line = np.zeros((20, 6), np.float32)
    line[:, 0] = 1
    line[:, 1] = np.linspace(0, 1e-3, 20)
    flat = [dataclasses.replace(item, true=line) for item in tasks]
    assert terminal_shape(flat)["effective_rank"] < 1.1
    perfect = terminal_retrieval(tasks)
    assert perfect["top1"].mean == 1 and perfect["cosine"].mean == pytest.approx(1, abs=1e-5)
    turned = [dataclasses.replace(item, predicted=np.roll(item.true, 1, axis=0)) for item in tasks]
    assert terminal_retrieval(turned)["top1"].mean == 0
    assert terminal_retrieval(tasks)["chance"].mean == pytest.approx(1 / 20)


def test_rows_are_those_of_serving_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ToyRecords(tmp_path / "ds", replayed=10)
    model = tiny_model(data)
    parts = {"encoder": model.encoder, "transition": model.transition, "cache": tmp_path / "cache"}
    tasks = gather(data, **parts)
    item, own = data.workloads()[0], data.trajectories(data.workloads()[0].id)
    serving = model.task(item, data.initial(item.id)).rows([t.steps for t in own])
    np.testing.assert_array_equal(tasks[0].rows("predicted", True), serving)
    assert serving.shape[1] == len(column_names(dim=8))
    assert tasks[0].replayed.sum() == 10
    last = data.states(item.id)[own[3].states[-1]]
    np.testing.assert_allclose(tasks[0].true[3], model.encoder.encode([last])[0], atol=0.02)
    monkeypatch.setattr("wmsched.learn.data.inputs._compute", lambda *_: pytest.fail("computed again"))
    again = gather(data, **parts)
    for state, phi in VARIANTS.values():
        np.testing.assert_array_equal(again[0].rows(state, phi), tasks[0].rows(state, phi))
    assert again[0].key == tasks[0].key and again[0].program == tasks[0].program


def test_the_whole_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ToyRecords(tmp_path / "ds", count=9, replayed=10)
    tiny_model(data).save_pretrained(tmp_path / "bundle")
    monkeypatch.setattr(evaluate, "Dataset", lambda root: data)
    options = evaluate.EvalOptions(dataset=tmp_path / "ds", bundle=tmp_path / "bundle", folds=3, threads=1)
    result = evaluate.evaluate(options)
    rows, part = result["all"]["rows"], result["replayed_only"]["rows"]
    assert set(rows) == {"random", *(name for name in VARIANTS if not name.startswith("true"))}
    assert set(part) == {"random", *VARIANTS}
    assert rows["phi"]["pairwise"].mean > 0.85 > rows["random"]["pairwise"].mean
    assert abs(rows["initial"]["pairwise"].mean - 0.5) < 0.05  # the same state for all orders nothing
    assert rows["phi"]["top1"].workloads == 9 and result["all"]["frozen"] is None  # trained on these logs
    assert result["own"] == "predicted + phi"
    text = markdown(result)
    assert "predicted terminal state + phi (the bundle)" in text and "| dense | 9 |" in text
    assert "E and F on workloads trained on, or held out (9)" in text
    evaluate.write_json(result, tmp_path / "out.json")
    stored = json.loads((tmp_path / "out.json").read_text())
    assert stored["all"]["rows"]["phi"]["pairwise"]["mean"] == pytest.approx(
        rows["phi"]["pairwise"].mean, abs=1e-5
    )
    assert stored["all"]["rows"]["phi"]["regret64"]["mean"] is None


def test_replayed_records_of_too_few_networks_leave_the_rest_of_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ToyRecords(tmp_path / "ds", count=9, replayed=10)
    tiny_model(data).save_pretrained(tmp_path / "bundle")
    for item in data.workloads():
        if item.network == "net2":  # none of it was chosen for replay
            own = data._trajectories[item.id]
            data._trajectories[item.id] = [dataclasses.replace(one, states=()) for one in own]
    monkeypatch.setattr(evaluate, "Dataset", lambda root: data)
    options = evaluate.EvalOptions(
        dataset=tmp_path / "ds",
        bundle=tmp_path / "bundle",
        folds=3,
        threads=1,
        states=0,
        variants=("phi", "true + phi"),
    )
    told: list[dict] = []
    result = evaluate.evaluate(options, log=told.append)
    assert set(result["all"]["rows"]) == {"random", "phi"} and "replayed_only" not in result
    (why,) = (line["replayed_only_left_out"] for line in told if "replayed_only_left_out" in line)
    assert "2 networks in 3 folds" in why
    assert "phi alone" in markdown(result) and "replayed records alone" not in markdown(result)


def test_rows_that_cannot_be_kept_are_computed_all_the_same(tmp_path: Path, caplog) -> None:
    data = ToyRecords(tmp_path / "ds")
    (tmp_path / "cache").touch()
    tasks = gather(data, cache=tmp_path / "cache")
    assert len(tasks) == 6 and len(caplog.messages) == 1 and "cannot be written (" in caplog.messages[0]


def test_rows_are_computed_anew_where_the_code_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {"/".join(path.parts[-2:]) for path in inputs._code()}
    features = ("features/vector_width", "batch/structure", "features/step_features", "batch/batch")
    others = ("features/trace_features", "schedules/steps", "schedules/traces", "schedules/types")
    rest = ("model/rows", "model/tokenizer", "model/transition", "data/operators", "data/inputs")
    assert code >= {f"{name}.py" for name in (*features, *others, *rest)}
    data, file = ToyRecords(tmp_path / "ds"), tmp_path / "code.py"
    monkeypatch.setattr(inputs, "_code", lambda: [file])
    for text in ("first", "second", "first"):
        file.write_text(text)
        gather(data, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_parts_of_the_data_by_what_the_bundle_saw(tmp_path: Path) -> None:
    data = ToyRecords(tmp_path / "ds")
    model = tiny_model(data)
    assert set(states.parts(data, model)) == {"trained on, or held out"}
    model.about["settings"] = {"encoder_training": {"valid_fraction": 0.3, "seed": 0}}
    found = states.parts(data, model)
    assert set(found) == {"held out", "trained on"}
    assert sorted(found["held out"] + found["trained on"]) == [item.id for item in data.workloads()]
    model.about["fingerprint"] = {"workloads": []}
    assert set(states.parts(data, model)) == {"not trained on"}
