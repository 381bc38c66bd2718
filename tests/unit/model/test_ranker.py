"""G: labels, training, saving; and the hardware columns."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rank_groups import SMALL, make_groups
from toy_records import ToyRecords

from wmsched.base.errors import BundleError, DatasetError
from wmsched.features.hardware import hardware_features, hardware_parameters
from wmsched.features.table import HARDWARE_NAMES
from wmsched.learn.evaluate.metrics import pairwise_accuracy
from wmsched.learn.training.train_ranker import (
    build_groups,
    by_network,
    deal,
    evaluate,
    measure,
    train_ranker,
)
from wmsched.model.groups import MAX_LABEL, RankGroup, relevance
from wmsched.model.online import MIN_MEASUREMENTS, Residual
from wmsched.model.ranker import OBJECTIVES, Ranker
from wmsched.schedules.types import Workload


@pytest.mark.parametrize("by", ["ratio", "order"])
def test_labels_follow_the_times_and_stay_within_what_xgboost_takes(by: str) -> None:
    seconds = np.array([2e-3, 1e-3, np.nan, 5e-3, np.inf, 0.0, 1e-3, 1.0])
    labels = relevance(seconds, by=by)
    assert labels.dtype == np.int64
    assert labels.max() == labels[1] == labels[6] == MAX_LABEL == 31
    assert list(labels[[2, 4, 5]]) == [0, 0, 0]
    assert labels[1] > labels[0] > labels[3] > labels[7] >= 1  # the slowest that ran is above a failure
    many = relevance(np.random.default_rng(0).lognormal(size=3000), by=by)
    assert many.min() >= 1 and many.max() == MAX_LABEL
    assert not relevance(np.full(4, np.nan), by=by).any()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_the_order_of_unseen_workloads(objective: str) -> None:
    groups = make_groups()
    ranker = Ranker.fit(groups[:9], dataclasses.replace(SMALL, objective=objective), valid=groups[9:10])
    assert measure(ranker, groups[10:])["pairwise"] > 0.85
    assert ranker.rounds <= SMALL.rounds


def test_a_saved_ensemble_predicts_the_same(tmp_path) -> None:
    groups = make_groups(4)
    ranker = Ranker.fit(groups, dataclasses.replace(SMALL, rounds=10))  # a model of each objective
    ranker.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ranker-1.ubj", "ranker-2.ubj", "ranker.ubj"]
    again = Ranker.load(tmp_path)
    assert again.config == ranker.config
    np.testing.assert_array_equal(again.margins(groups[0].rows), ranker.margins(groups[0].rows))
    (tmp_path / "ranker-2.ubj").unlink()
    with pytest.raises(BundleError, match=r"ranker-2\.ubj is missing"):
        Ranker.load(tmp_path)
    (tmp_path / "ranker.ubj").write_bytes(b"not a model")
    with pytest.raises(BundleError, match="no usable ranker"):
        Ranker.load(tmp_path)


def test_a_margin_does_not_depend_on_its_batch() -> None:
    groups = make_groups(4)
    ranker = Ranker.fit(groups, dataclasses.replace(SMALL, n_models=2, rounds=10))
    whole = ranker.margins(groups[0].rows)
    np.testing.assert_array_equal(np.concatenate([ranker.margins(r[None]) for r in groups[0].rows]), whole)
    # in units of the spread within a workload
    assert 0.5 < np.mean([ranker.margins(group.rows).std() for group in groups]) < 1.5
    assert ranker.margins(groups[0].rows[:0]).shape == (0,)
    with pytest.raises(ValueError, match="trained on 5 columns"):
        ranker.margins(groups[0].rows[:, :4])


def test_nothing_to_learn_is_said() -> None:
    failed = RankGroup("w", np.zeros((3, 2), np.float32), np.full(3, np.nan))
    with pytest.raises(DatasetError, match="two measured programs"):
        Ranker.fit([failed], SMALL)


def test_folds_keep_networks_together_and_measure_every_workload() -> None:
    groups = make_groups(12)
    parts = deal(groups, 3)
    assert sorted(number for part in parts for number in part) == list(range(12))
    networks = [{groups[i].network for i in part} for part in parts]
    assert sum(map(len, networks)) == 6 == len(set.union(*networks))
    found = evaluate(groups, dataclasses.replace(SMALL, objective="rank:pairwise"), folds=3)
    assert found["workloads"] == 12
    assert found["pairwise"] > 0.85 and 0.5 < found["top1"] <= found["top5"] <= 1


def test_what_cannot_be_evaluated_is_fitted_all_the_same() -> None:
    groups = make_groups(6)
    flat = [dataclasses.replace(group, seconds=np.ones(40)) for group in groups]
    told: list[dict] = []
    ranker, found = train_ranker([*groups[:2], *flat[2:]], config=SMALL, folds=3, log=told.append)
    assert found == {} and told[-1] == {"ranker": {}}
    assert "two measured programs" in told[0]["not_evaluated"]  # held out, one network leaves no order
    assert measure(ranker, groups[:2])["pairwise"] > 0.7
    _, found = train_ranker(groups[:2], config=SMALL, log=told.append)
    assert found == {} and "2 workloads in 2 parts: " in told[-2]["not_evaluated"]


def test_what_no_fold_could_measure_is_no_zero() -> None:
    """One program of each workload ran: an order to learn, and none to measure."""
    groups = [
        dataclasses.replace(group, seconds=np.where(np.arange(40) == 3, 1.0, np.nan))
        for group in make_groups(6)
    ]
    found = evaluate(groups, SMALL, folds=3)
    assert np.isnan(found["top1"]) and np.isnan(found["pairwise"]) and found["workloads"] == 0


def test_two_networks_are_dealt_by_program() -> None:
    """Held out whole they would leave none to stop on, and their number of trees would be a guess."""
    groups, three = make_groups(4), make_groups(6)
    assert by_network(three) and not by_network(groups)
    assert sorted(map(len, deal(groups, 3))) == [1, 1, 2]
    assert all(three[a].network == three[b].network for a, b in deal(three, 3))
    config = dataclasses.replace(SMALL, objective="rank:pairwise", patience=0)
    ranker, found = train_ranker(groups, config=config, folds=3)
    assert ranker.rounds == config.rounds and found["workloads"] == 4 and found["pairwise"] > 0.6


def test_a_program_of_two_machines_is_in_one_fold(tmp_path) -> None:
    data = ToyRecords(tmp_path)
    for own in list(data._workloads):
        twin = dataclasses.replace(own, target="llvm -mcpu=core-avx2", network="")
        twin.__dict__["id"] = f"{own.id}-twin"
        data._workloads.append(twin)
        data._trajectories[twin.id] = data.trajectories(own.id)
    groups = build_groups(data, state="none")
    program = {workload.id: workload.key for workload in data.workloads()}
    assert {group.network for group in groups} == {"net0", "net1", "net2"}
    one = [dataclasses.replace(group, network="net") for group in groups]
    for dealt in (deal(groups, 3), deal(one, 3, programs=program)):
        keys = [{program[groups[n].key] for n in part} for part in dealt]
        assert sum(map(len, keys)) == 6 == len(set.union(*keys)) and len(keys) == 3


def test_the_residual_learns_what_the_ranker_has_wrong() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4)).astype(np.float32)
    seconds = np.exp(rows[:, 1].astype(float))
    margins = rows[:, 0]  # knows nothing of what matters
    residual = Residual()
    residual.observe(
        rows[: MIN_MEASUREMENTS - 1], margins[: MIN_MEASUREMENTS - 1], seconds[: MIN_MEASUREMENTS - 1]
    )
    np.testing.assert_array_equal(residual.correct(rows, margins), margins)
    residual.observe(
        rows[MIN_MEASUREMENTS - 1 : 100],
        margins[MIN_MEASUREMENTS - 1 : 100],
        seconds[MIN_MEASUREMENTS - 1 : 100],
    )
    assert residual.trust == pytest.approx(100 / 132)
    before = pairwise_accuracy(margins[100:], seconds[100:])
    assert pairwise_accuracy(residual.correct(rows, margins)[100:], seconds[100:]) > before + 0.15
    failed = Residual()
    failed.observe(rows[:20], margins[:20], np.full(20, np.nan))
    np.testing.assert_array_equal(failed.correct(rows, margins), margins)


def test_hardware_columns_of_cpu_gpu_and_nothing() -> None:
    def told(target: str, hardware: tuple[int, ...] = ()) -> dict[str, float]:
        values = hardware_features(Workload(key="k", target=target, hardware=hardware))
        assert values.dtype == np.float32 and np.isfinite(values).all()
        return dict(zip(HARDWARE_NAMES, values.tolist()))

    cpu = told("llvm -keys=cpu -mcpu=znver4 -num-cores=2", (1, 64, 64, 0, 0, 0, 0, 0))
    assert (cpu["h.cores"], cpu["h.vector_bytes"], cpu["h.avx512"], cpu["h.is_gpu"]) == (2, 64, 1, 0)
    assert told("llvm -mcpu=core-avx2", (8,))["h.avx512"] == 0
    assert told("llvm -mcpu=core-avx2", (8,))["h.cores"] == 8
    assert told("llvm -mcpu=x86-64-v4")["h.avx512"] == 1
    assert told("llvm -mcpu=arrowlake")["h.log2_l1_bytes"] > told("llvm -mcpu=haswell")["h.log2_l1_bytes"]
    for mattr in (
        "llvm -mcpu=haswell -mattr=+avx2,+avx512f,+prefer-256-bit -num-cores=2",
        '{"kind":"llvm","mattr":["+avx512f","+avx512bw"],"mcpu":"haswell"}',
        '{"kind": "llvm", "mattr": ["+sse4.2", "+avx512bw"]}',
        '{"kind": "llvm", "mattr": "-avx512f,+avx512f"}',
        "llvm -mcpu=skylake-avx512 -mattr=-avx512fp16,-avx512vnni",
    ):
        assert (told(mattr)["h.avx512"], told(mattr)["h.vector_bytes"]) == (1, 64), mattr
    for mattr in (
        "llvm -mcpu=skylake-avx512 -mattr=-avx512f",
        "llvm -mcpu=skylake-avx512 -mattr=+avx512vl,-avx512f -num-cores=2",
        '{"kind":"llvm","mattr":["-avx512f"],"mcpu":"znver4"}',
        "llvm -mattr=-avx512f",
        "llvm -mcpu=haswell -mattr=-avx512bw",
    ):
        assert (told(mattr)["h.avx512"], told(mattr)["h.vector_bytes"]) == (0, 32), mattr
    assert hardware_parameters('{"kind":"llvm","mattr":["-avx512f"],"mcpu":"znver4"}')[1] == 32
    arm = {name: told(f'{{"kind":"llvm","mattr":["{name}"]}}')["h.arm"] for name in ("+neon", "-neon")}
    assert arm == {"+neon": 1, "-neon": 0}
    gpu = told("cuda -keys=cuda,gpu -model=t4", (-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32))
    assert (gpu["h.is_gpu"], gpu["h.warp_size"], gpu["h.avx512"]) == (1, 32, 0)
    assert gpu["h.log2_max_threads"] == pytest.approx(10, abs=0.01)
    assert told('{"kind": "cuda", "arch": "sm_75"}')["h.is_gpu"] == 1
    assert told("")["h.cores"] == 1
