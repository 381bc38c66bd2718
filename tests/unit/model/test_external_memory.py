"""G from rows on disk: the model is the one from memory, and its memory does not follow the rows."""

from __future__ import annotations

import dataclasses
import errno
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rank_groups import SMALL, make_groups
from toy_stored import write_toy

from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset
from wmsched.learn.data.inputs import gather
from wmsched.learn.training.train import TrainOptions, train
from wmsched.learn.training.train_ranker import build_groups, evaluate
from wmsched.model import external_memory
from wmsched.model.bundles import recover_interrupted_save
from wmsched.model.external_memory import stored, too_large
from wmsched.model.ranker import OBJECTIVES, Ranker, RankerConfig

SAMPLED = dataclasses.replace(SMALL, patience=0, subsample=0.8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_from_rows_on_disk_predicts_as_one_from_memory(
    objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(external_memory.external_matrix.__kwdefaults__, "batch_bytes", 2000)  # three groups
    groups = make_groups()
    groups[3].rows[:, 2] = np.nan  # a column that a group does not have
    config = dataclasses.replace(SAMPLED, objective=objective)
    here = Ranker.fit(groups, config)
    there = Ranker.fit([stored(group, tmp_path / f"{group.key}.npy") for group in groups], config)
    rows = make_groups(3, seed=5)[2].rows
    np.testing.assert_allclose(there.margins(rows), here.margins(rows), atol=1e-4)
    np.testing.assert_allclose(there.spreads, here.spreads, rtol=1e-4)
    assert not list(tmp_path.glob("xgboost*"))  # its cache goes with the matrix


def test_early_stopping_and_folds_work_from_disk(tmp_path: Path) -> None:
    groups = make_groups()
    on_disk = [stored(group, tmp_path / f"{group.key}.npy") for group in groups]
    here, there = (evaluate(some, SMALL, folds=3) for some in (groups, on_disk))
    assert there == pytest.approx(here, abs=1e-6) and there["rounds"] < SMALL.rounds


def test_a_bundle_trained_from_disk_is_the_one_trained_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_toy(tmp_path / "data")
    base = TrainOptions(
        dataset=data, out=tmp_path / "a", state="none", ranker=RankerConfig(rounds=10, threads=1)
    )
    rows = Dataset(data).workloads()[0].id
    here = train(base)
    there = train(dataclasses.replace(base, out=tmp_path / "b", external=True))
    assert not (tmp_path / "b.training" / "rows").exists()
    groups = {group.key: group for group in build_groups(Dataset(data), state="none")}
    np.testing.assert_allclose(
        there.ranker.margins(groups[rows].rows), here.ranker.margins(groups[rows].rows), atol=1e-5
    )
    assert there.about["metrics"] == pytest.approx(here.about["metrics"])
    asked = []
    monkeypatch.setattr("wmsched.learn.training.train.too_large", lambda *sizes: not asked.append(sizes))
    monkeypatch.setattr(
        "wmsched.learn.training.train_ranker.stored", lambda group, path: asked.append(path) or group
    )
    train(dataclasses.replace(base, out=tmp_path / "c"))  # as it is where memory would not hold them
    (records, columns), *paths = asked
    assert records == 144 and columns > groups[rows].rows.shape[1] and len(paths) == 6
    with pytest.raises(DatasetError, match="boosted trees, not for ranker 'attention'"):
        train(dataclasses.replace(base, out=tmp_path / "d", kind="attention", external=True))


def test_what_is_too_large_follows_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_memory, "available_bytes", lambda: 1 << 30)
    assert too_large(1_000_000, 200) and not too_large(100_000, 200)


def test_records_of_a_disturbed_machine_teach_nothing_unless_asked_for(tmp_path: Path) -> None:
    data = Dataset(write_toy(tmp_path / "data", disturbed=8))
    told: list[dict] = []
    quiet = build_groups(data, state="none", log=told.append)
    assert {len(group.seconds) for group in quiet} == {16} and {len(group.rows) for group in quiet} == {16}
    assert told == [{"disturbed_left_out": 48}]
    everything = build_groups(data, state="none", disturbed=True)
    assert {len(group.seconds) for group in everything} == {24}
    np.testing.assert_array_equal(everything[0].seconds[8:], quiet[0].seconds)
    told.clear()
    tasks = gather(data, true_states=False, log=told.append)
    assert {len(task.seconds) for task in tasks} == {16} and told[-1] == {"disturbed_left_out": 48}
    never = Dataset(write_toy(tmp_path / "bad", records=4, disturbed=4))
    with pytest.raises(DatasetError, match="but 24 of a disturbed machine; --keep-disturbed"):
        build_groups(never, state="none")
    with pytest.raises(DatasetError, match=r"no records to rank but 24 .* as disturbed; measure again"):
        gather(never, true_states=False, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    unchecked = Dataset(write_toy(tmp_path / "unchecked"))  # null: nobody looked
    assert {len(group.seconds) for group in build_groups(unchecked, state="none")} == {24}


def test_what_a_kill_while_saving_leaves_is_mended(tmp_path: Path) -> None:
    def folder(name: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
        return tmp_path / name

    half, old, foreign = folder(".b-ab12_xyz"), folder(".b-old-ab12_xyz"), folder(".b-x-ab12_xyz")
    recover_interrupted_save(tmp_path / "b")
    assert not half.exists() and not old.exists() and foreign.exists()
    assert (tmp_path / "b" / "config.json").read_text() == ".b-old-ab12_xyz"  # it has its name back
    folder(".b-old-ab12_xyz")
    recover_interrupted_save(tmp_path / "b")  # now it is the older one
    assert (tmp_path / "b" / "config.json").read_text() == ".b-old-ab12_xyz"
    assert {path.name for path in tmp_path.iterdir()} == {"b", ".b-x-ab12_xyz"}


PEAK = """
import sys
from pathlib import Path
import numpy as np
from wmsched.model.ranker import Ranker, RankerConfig, RankGroup
from wmsched.model.external_memory import stored
groups, folder, on_disk = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "disk"
held = []
for number in range(groups):
    rng = np.random.default_rng(number)
    rows = rng.integers(0, 9, (1000, 200)).astype(np.float32)
    group = RankGroup(str(number), rows, np.exp(rows[:, 0] / 9 + rng.normal(size=1000) / 9))
    held.append(stored(group, folder / f"{number}.npy") if on_disk else group)
Ranker.fit(held, RankerConfig(objective="rank:pairwise", rounds=2, depth=3, threads=1))
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1])
"""


@pytest.mark.slow
def test_memory_does_not_follow_the_rows(tmp_path: Path) -> None:
    """200 columns of 100,000 records are 80 MB, of 400,000 four times as much."""

    def peak(groups: int, where: str) -> int:
        folder = tmp_path / f"{groups}-{where}"
        command = [sys.executable, "-c", PEAK, str(groups), str(folder), where]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        return int(re.sub(r"\D", "", run.stdout)) >> 10

    found = {(groups, where): peak(groups, where) for groups in (100, 400) for where in ("disk", "memory")}
    print({f"{groups}000 records, {where}": f"{mb} MB" for (groups, where), mb in found.items()})
    rows = 300_000 * 200 * 4 >> 20
    assert found[400, "memory"] - found[100, "memory"] > 2 * rows
    assert found[400, "disk"] - found[100, "disk"] < 0.5 * rows


def test_rows_that_the_disk_has_no_room_for_are_told_so(tmp_path: Path, monkeypatch) -> None:
    """numpy writes an array past Python's files, and its error has no number."""

    def full(*_, **__):
        raise OSError("8192 requested and 512 written")

    group = make_groups()[0]
    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match=r"is the disk full.*512 written") as caught:
        stored(group, tmp_path / "rows.npy")
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(tmp_path / "rows.npy")


def test_rows_on_disk_go_with_a_training_that_fails(tmp_path: Path, monkeypatch) -> None:
    there: list[bool] = []
    rows = tmp_path / "b.training" / "rows"

    def stopped(*_, **__):
        there.append(any(rows.iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr("wmsched.learn.training.train.train_ranker", stopped)
    data = write_toy(tmp_path / "data")
    with pytest.raises(KeyboardInterrupt):
        train(TrainOptions(dataset=data, out=tmp_path / "b", state="none", external=True))
    assert there == [True] and not rows.exists()
