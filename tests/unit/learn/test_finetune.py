"""``wmsched finetune``: three ways to adapt G, what the new bundle says, and the learning curve."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from toy_records import ToyRecords, tiny_model

from wmsched.base.errors import BundleError, DatasetError
from wmsched.learn.data.inputs import check_scheduler
from wmsched.learn.evaluate.cross_validation import deal
from wmsched.learn.evaluate.metrics import pairwise_accuracy
from wmsched.learn.training import finetune as module
from wmsched.learn.training import learning_curve as curve_module
from wmsched.learn.training.adaptation import METHODS, continued, cross, fitting
from wmsched.learn.training.finetune import FinetuneOptions, finetune, take
from wmsched.learn.training.learning_curve import curve_markdown, learning_curve
from wmsched.model.groups import RankGroup
from wmsched.model.ranker import Ranker, RankerConfig
from wmsched.model.world_model import WorldModel
from wmsched.schedules.traces import KEY_PREFIX

SMALL = RankerConfig(objective="reg:squarederror+rank:pairwise", rounds=20, depth=3, threads=1, patience=0)


def machine(count: int, *, sign: float, seed: int = 0) -> list[RankGroup]:
    """Time follows column 0 on every machine, and column 1 one way or the other."""
    rng, groups = np.random.default_rng(seed), []
    for number in range(count):
        rows = rng.normal(size=(16, 4)).astype(np.float32)
        seconds = np.exp(rows[:, 0].astype(float) + 2 * sign * rows[:, 1])
        groups.append(RankGroup(f"w{seed}-{number}", rows, seconds, f"net{number}"))
    return groups


@pytest.fixture(scope="module")
def old() -> list[RankGroup]:
    return machine(12, sign=1.0)


@pytest.fixture(scope="module")
def ranker(old) -> Ranker:
    return Ranker.fit(old, SMALL)


def accuracy(ranker: Ranker, groups: list[RankGroup]) -> float:
    return float(np.mean([pairwise_accuracy(ranker.margins(g.rows), g.seconds) for g in groups]))


@pytest.mark.parametrize("method", METHODS)
def test_every_way_learns_the_new_machine(ranker: Ranker, old, method: str) -> None:
    new, test = machine(10, sign=-1.0, seed=1), machine(5, sign=-1.0, seed=2)
    adapted = fitting(ranker, method, old, weight=8)(new)
    assert accuracy(ranker, test) < 0.5
    assert accuracy(adapted, test) > 0.65
    assert adapted.width == ranker.width and len(adapted.boosters) == 2


def test_continuing_keeps_the_trees_and_leaves_the_bundle_alone(ranker: Ranker) -> None:
    new = machine(8, sign=-1.0, seed=1)
    before = ranker.margins(new[0].rows)
    adapted = continued(ranker, new)
    assert adapted.rounds > ranker.rounds and adapted.spreads == ranker.spreads
    np.testing.assert_array_equal(ranker.margins(new[0].rows), before)
    first = adapted.boosters[0][: ranker.boosters[0].num_boosted_rounds()]
    np.testing.assert_allclose(
        first.inplace_predict(new[0].rows), ranker.boosters[0].inplace_predict(new[0].rows), atol=1e-6
    )


def test_records_that_teach_nothing_change_nothing(ranker: Ranker) -> None:
    rng = np.random.default_rng(3)
    noise = [
        dataclasses.replace(group, seconds=rng.lognormal(size=len(group.seconds)))
        for group in machine(6, sign=1.0, seed=4)
    ]
    adapted = continued(ranker, noise)
    good = machine(5, sign=1.0, seed=5)
    assert accuracy(adapted, good) > accuracy(ranker, good) - 0.1
    flat = [dataclasses.replace(group, seconds=np.ones(16)) for group in noise]
    with pytest.raises(DatasetError, match="measure more"):
        continued(ranker, flat)
    with pytest.raises(DatasetError, match="measure more"):  # else it were the old data's ranker, fitted anew
        fitting(ranker, "mix", machine(6, sign=1.0))(flat)


def test_records_are_taken_by_whole_workloads() -> None:
    groups = machine(5, sign=1.0)
    taken = take(groups, 40, seed=1)
    assert [len(group.rows) for group in taken] == [16, 16, 8]
    assert {group.key for group in taken} != {group.key for group in take(groups, 40, seed=2)}
    assert sum(len(group.rows) for group in take(groups, None)) == 80
    assert len(take(groups, 33)) == 2  # one record alone has no order


def test_no_workload_is_measured_by_what_it_taught(ranker: Ranker) -> None:
    groups, seen = machine(6, sign=1.0), []

    def fit(train):
        seen.append({group.key for group in train})
        return ranker

    cross(groups, fit, ranker, folds=3)
    assert len(seen) == 3
    assert all(sum(group.key not in keys for keys in seen) == 1 for group in groups)


def test_the_adapted_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = ToyRecords(tmp_path / "old"), ToyRecords(tmp_path / "new", count=7, slower=True)
    tiny_model(first).save_pretrained(tmp_path / "b")
    sets = {"old": first, "new": other}
    monkeypatch.setattr(module, "Dataset", lambda root: sets[Path(root).name])
    options = FinetuneOptions(
        bundle=tmp_path / "b", dataset=tmp_path / "new", out=tmp_path / "c", old=tmp_path / "old"
    )
    assert options.chosen == "mix"
    finetune(dataclasses.replace(options, method="continue"))
    adapted = WorldModel.from_pretrained(tmp_path / "c")
    said = adapted.about["finetuned"]
    assert said["method"] == "continue" and said["records"] == 168 and said["workloads"] == 7
    assert said["metrics"]["finetuned"]["pairwise"] > said["metrics"]["frozen"]["pairwise"] + 0.2
    # a leak check must find the workloads of both
    assert len(adapted.about["fingerprint"]["workloads"]) == 7
    assert adapted.about["fingerprint"]["sources"] == ["new", "old"]
    assert "adapted by" in (tmp_path / "c" / "MODEL_CARD.md").read_text()
    told: list[dict] = []
    again = dataclasses.replace(options, bundle=tmp_path / "c", out=tmp_path / "d", method="continue")
    finetune(again, log=told.append)  # of records that it knows already
    assert told[-1]["finetuned"].endswith("trained on 1 of these logs")
    assert WorldModel.from_pretrained(tmp_path / "d").about["finetuned"]["metrics"] == {}
    lines = learning_curve(options, sizes=(48,), draws=1, folds=3)
    assert [(line["method"], line["records"]) for line in lines] == [
        ("frozen", 0),
        *((method, 48) for method in METHODS),
        *((method, 96) for method in METHODS),
    ]
    assert lines[-1]["pairwise"].mean > lines[0]["pairwise"].mean + 0.2
    assert lines[-1]["pairwise_gain"].low > 0 and "pairwise_gain" not in lines[0]
    assert "| 48 | scratch |" in curve_markdown(lines)
    assert tuple(sorted(curve_module.SIZES)) == curve_module.SIZES


def test_what_is_new_is_not_among_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `--old` is a merge that has the new records, too: held out, they would be known."""
    data = ToyRecords(tmp_path / "all")
    tiny_model(data).save_pretrained(tmp_path / "b")
    monkeypatch.setattr(module, "Dataset", lambda root: data)
    same = tmp_path / "x"
    options = FinetuneOptions(bundle=tmp_path / "b", dataset=same, out=tmp_path / "c", old=same)
    model = WorldModel.from_pretrained(tmp_path / "b")
    groups = module.groups_of(model, tmp_path / "x", None, bundle="b")
    told: list[dict] = []
    kept = module.old_groups(model, options, groups[:3], told.append)
    assert [group.key for group in kept] == [group.key for group in groups[3:]]
    assert told[-1]["old_left_out"] == 3


def test_a_draw_leaves_out_what_has_no_order() -> None:
    groups = machine(3, sign=1.0)
    failed = dataclasses.replace(groups[0], seconds=np.full(16, np.nan))
    failed.seconds[15] = 1.0
    assert take([failed], 8) == [] and len(take([failed], 16)) == 1
    later = next(n for n in range(9) if np.random.default_rng(n).permutation(2)[0] == 1)
    assert [group.key for group in take([failed, groups[1]], 18, seed=later)] == [groups[1].key]


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="method='more'"):
        FinetuneOptions(bundle="b", dataset=tmp_path, out=tmp_path, method="more")
    with pytest.raises(ValueError, match="needs the old dataset"):
        FinetuneOptions(bundle="b", dataset=tmp_path, out=tmp_path, method="mix")
    model = type("Model", (), {"ranker": object()})()
    with pytest.raises(BundleError, match="--ranker trees"):
        module.trees(model)


def test_records_of_the_other_scheduler_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, traces = ToyRecords(tmp_path / "old"), ToyRecords(tmp_path / "new")
    traces._workloads = [dataclasses.replace(w, key=f'{KEY_PREFIX}"{w.key}"]') for w in traces._workloads]
    tiny_model(data).save_pretrained(tmp_path / "b")
    sets = {"old": data, "new": traces}
    monkeypatch.setattr(module, "Dataset", lambda root: sets[Path(root).name])
    options = FinetuneOptions(bundle=tmp_path / "b", dataset=tmp_path / "new", out=tmp_path / "c")
    for run in (finetune, learning_curve):
        with pytest.raises(DatasetError, match=r"MetaSchedule's, and .*b ranks Auto.*: --bundle x86-meta"):
            run(options)
    assert not (tmp_path / "c").exists()
    meta = SimpleNamespace(phi=True, traces=True)
    check_scheduler(meta, traces, "m")
    with pytest.raises(DatasetError, match=r"AutoScheduler's, and m ranks Meta.*: --bundle x86-avx512"):
        check_scheduler(meta, data, "m")
    check_scheduler(SimpleNamespace(phi=False, traces=True), data, "m")  # its columns are the same for both
    data._workloads = [*data._workloads, traces._workloads[0]]
    with pytest.raises(DatasetError, match="the logs of one of them alone"):
        check_scheduler(meta, data, "m")


def test_an_unusable_out_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    options = FinetuneOptions(bundle="no-such-bundle", dataset=tmp_path / "none", out=tmp_path / "mine")
    with pytest.raises(BundleError, match="is no bundle"):
        finetune(options)


def test_what_cannot_be_measured_is_left_out_and_said(ranker: Ranker) -> None:
    def fit(new):
        return continued(ranker, new)

    two = machine(2, sign=1.0)
    assert module._measured([*two, *two], fit, ranker) == ({}, "too few workloads")  # on two machines
    groups = machine(15, sign=1.0, seed=1)
    told = set(deal(groups, folds=5, by="workload")[0])  # all that there is to learn is in one fold
    groups = [g if n in told else dataclasses.replace(g, seconds=np.ones(16)) for n, g in enumerate(groups)]
    found, why = module._measured(groups, fit, ranker)
    assert found == {} and "measure more" in why


def test_two_programs_on_two_machines_are_enough_to_adapt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = ToyRecords(tmp_path / "old"), ToyRecords(tmp_path / "new", count=2, slower=True)
    for own in list(other._workloads):
        twin = dataclasses.replace(own, target="llvm -mcpu=skylake-avx512")
        twin.__dict__["id"] = f"{own.id}-twin"
        other._workloads.append(twin)
        other._trajectories[twin.id], other._states[twin.id] = other.trajectories(own.id), {}
    tiny_model(first).save_pretrained(tmp_path / "b")
    sets = {"old": first, "new": other}
    monkeypatch.setattr(module, "Dataset", lambda root: sets[Path(root).name])
    told: list[dict] = []
    options = FinetuneOptions(bundle=tmp_path / "b", dataset=tmp_path / "new", out=tmp_path / "c")
    finetune(options, log=told.append)
    assert told[-1] == {"finetuned": "on 4 workloads, not measured: too few workloads"}
    assert WorldModel.from_pretrained(tmp_path / "c").about["finetuned"]["metrics"] == {}
