"""Split, dedupe, migrate, card and pictures of a dataset."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import HASHES, change_rows, record_line, write_dataset
from merged_datasets import accounted, counts, make

from data_builder.base.store import TableWriter
from data_builder.derive import split as split_module
from data_builder.derive.card import card
from data_builder.derive.dedupe import dedupe
from data_builder.derive.merge import merge
from data_builder.derive.migrate import migrate
from data_builder.derive.split import leaks, parse_parts, split
from data_builder.derive.stats import workload_stats
from data_builder.derive.validate import problems
from data_builder.derive.writer import MARKER
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import WORKLOADS, Dataset, trajectories_path
from wmsched.learn.data.splits import networks_of
from wmsched.schedules.types import Iter, Stage, Workload

#: network -> its workloads; the first two share k2, so they must stay together.
NETWORKS = {"a": ["k1", "k2"], "b": ["k3"], "c": ["k4", "k5"], "d": ["k6"]}


@pytest.fixture
def networks(tmp_path: Path) -> Path:
    """Nine rank groups of six keys: k1 to k3 on two machines, under the names of four networks."""
    lines = [
        record_line(key, 1e-3 * n, target=target)
        for keys in NETWORKS.values()
        for key in keys
        for target in (("llvm", "cuda") if key < "k4" else ("llvm",))
        for n in (1, 2)
    ]
    root = make(tmp_path, "whole", [*lines, b"{bad", lines[0]])
    dataset = Dataset(root)
    name_of = {key: name for name, keys in NETWORKS.items() for key in keys}
    rows = [dict(dataset.row(workload_id)) for workload_id in dataset.workload_ids]
    with TableWriter(root / "workloads.parquet", WORKLOADS) as table:
        for row in rows:
            # The same program on another machine was labelled with another network.
            other = row["workload_key"] == "k2" and row["target"] == "cuda"
            table.add({**row, "network": "b" if other else name_of[row["workload_key"]]})
    return root


@pytest.mark.parametrize("by", ["network", "workload"])
def test_parts_share_no_program_and_hold_every_record(by: str, networks: Path, tmp_path: Path) -> None:
    parts = {"train": 0.6, "valid": 0.2, "test": 0.2}
    split(networks, tmp_path / "parts", parts, by=by)
    roots = [tmp_path / "parts" / part for part in parts]
    assert list(leaks(roots, networks=by == "network")) == []
    whole: dict = {}
    for root in roots:
        assert list(problems(root)) == [] and accounted(root)
        assert not set(whole) & set(counts(root))
        whole |= counts(root)
    assert whole == counts(networks)
    keys = [set(Dataset(root).fingerprint()["workloads"]) for root in roots]
    assert sum(map(len, keys)) == 6 == len(set.union(*keys))  # machines of one key never part
    again = split(networks, tmp_path / "again", parts, by=by)
    assert {p: m["totals"] for p, m in again.items()} == {
        part: Dataset(tmp_path / "parts" / part).manifest["totals"] for part in parts
    }


def test_named_networks_go_where_they_are_told_unless_they_share_a_program(
    networks: Path, tmp_path: Path
) -> None:
    split(networks, tmp_path / "parts", parse_parts("test=c,train=rest"))
    assert {key for key, _ in counts(tmp_path / "parts" / "test")} == {"k4", "k5"}
    assert {key for key, _ in counts(tmp_path / "parts" / "train")} == {"k1", "k2", "k3", "k6"}
    with pytest.raises(DatasetError, match="a, b share a program"):
        split(networks, tmp_path / "leak", parse_parts("test=a,train=rest"))
    with pytest.raises(DatasetError, match=r"no network \['vgg'\]"):
        split(networks, tmp_path / "leak", parse_parts("test=vgg,train=rest"))
    assert not (tmp_path / "leak").exists()


def test_a_split_that_was_stopped_goes_on(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"train": 0.6, "valid": 0.2, "test": 0.2}
    write = split_module._write

    def killed(dataset, ids, out, made):
        if out.name == "valid":
            raise KeyboardInterrupt
        return write(dataset, ids, out, made)

    with monkeypatch.context() as patch:
        patch.setattr(split_module, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            split(networks, tmp_path / "parts", parts)
    assert {path.name for path in (tmp_path / "parts").iterdir()} == {"train"}
    (tmp_path / "parts" / "train" / MARKER).touch()  # the kill came right after its manifest
    manifests = split(networks, tmp_path / "parts", parts)
    assert manifests == split(networks, tmp_path / "parts", parts)  # nothing is left to do
    fresh = split(networks, tmp_path / "fresh", parts)
    assert {part: m["files"] for part, m in manifests.items()} == {p: m["files"] for p, m in fresh.items()}
    assert not (tmp_path / "parts" / "train" / MARKER).exists()
    with pytest.raises(DatasetError, match="holds a dataset already"):  # other shares deal otherwise
        split(networks, tmp_path / "parts", {"train": 0.2, "valid": 0.2, "test": 0.6})
    manifest = json.loads((networks / "manifest.json").read_text())
    (networks / "manifest.json").write_text(json.dumps({**manifest, "plan": "built anew"}))
    with pytest.raises(DatasetError, match="holds a dataset already"):
        split(networks, tmp_path / "parts", parts)


@pytest.mark.parametrize(
    ("spec", "says"),
    [("train=0.8,test=0.3", "add up to 1"), ("train", "not name=share"), ("a=0.5,a=0.5", "each name once"),
     ("a=rest,b=rest", "only one"), ("../x=1.0", "not name=share"), ("a=-0.5,b=1.5", "above 0"),
     ("a=0.5,b=net", "every part")],
)  # fmt: skip
def test_parts_that_make_no_sense_are_refused(spec: str, says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        parse_parts(spec)


def test_a_split_that_cannot_be_is_refused(networks: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="would be empty"):
        split(networks, tmp_path / "p", {str(n): 0.25 for n in range(4)})  # three clusters
    nameless = make(tmp_path, "nameless", [record_line("k1", 1e-3), record_line("k2", 1e-3)])
    with pytest.raises(DatasetError, match="has no network"):
        split(nameless, tmp_path / "p", {"a": 0.5, "b": 0.5})
    split(nameless, tmp_path / "p", {"a": 0.5, "b": 0.5}, by="workload")
    assert next(leaks([nameless, tmp_path / "p" / "a"])).startswith("workload k")


@pytest.mark.parametrize(
    ("keep", "kept"), [("first", [3e-3, 1e10]), ("best", [1e-3, 1e10]), ("median", [2e-3, 1e10])]
)
def test_of_a_repeated_schedule_one_record_stays(keep: str, kept: list[float], tmp_path: Path) -> None:
    other = [["SP", 0, 0, 8, [2], 1]]
    lines = [record_line("k1", 1e10, 4), *(record_line("k1", cost) for cost in (3e-3, 1e-3, 9e-3, 2e-3))]
    lines += [record_line("k1", 1e10, 2, steps=other), record_line("k1", 1e10, 7, steps=other)]
    root = make(tmp_path, "whole", lines)
    manifest = dedupe(root, tmp_path / "d", keep=keep)
    ((_, records),) = Dataset(tmp_path / "d").iter_trajectories()
    assert [record.measurement.costs[0] for record in records] == kept
    assert records[1].measurement.error_no == 2
    assert manifest["totals"]["duplicates"] == 5
    assert accounted(tmp_path / "d") and list(problems(tmp_path / "d")) == []
    assert (tmp_path / "d" / "problems.txt").read_text().count("the schedule of another line") == 5
    (row,) = workload_stats(Dataset(root))
    assert row.repeated == 5 and row.step_counts == {2: 5, 1: 2}
    assert len(row.relative) == 11 and row.relative[0] == 1.0 and row.relative[-1] == pytest.approx(9.0)


@pytest.mark.parametrize(("states", "kept"), [(HASHES, HASHES), ([HASHES[1], *HASHES[1:]], [])])
def test_the_record_that_stays_gets_the_states_of_one_that_goes(
    states: list[str], kept: list[str], tmp_path: Path
) -> None:
    name = write_dataset(tmp_path / "whole")  # one schedule twice, the second time it failed
    path = trajectories_path(tmp_path / "whole", name)
    change_rows(path, lambda rows: [{**rows[0], "states": []}, {**rows[1], "states": states}])
    manifest = dedupe(tmp_path / "whole", tmp_path / "d")
    (record,) = Dataset(tmp_path / "d").trajectories(name)
    assert record.measurement.ok and record.states == tuple(kept)  # none of another initial program
    assert manifest["totals"]["replayed"] == bool(kept)
    assert list(problems(tmp_path / "d")) == [] and accounted(tmp_path / "d")


@pytest.mark.parametrize("version", [1, 2])
def test_an_earlier_format_is_rewritten_with_the_same_content(version: int, tmp_path: Path) -> None:
    name = write_dataset(tmp_path / "old", version=version)
    old = Dataset(tmp_path / "old")
    before = (old.trajectories(name), old.states(name), old.sources(name), old.fingerprint())
    migrate(tmp_path / "old", tmp_path / "new")
    new = Dataset(tmp_path / "new")
    (now,) = new.workload_ids
    records = [(r.steps, r.states, r.measurement) for r in new.trajectories(now)]
    assert records == [(r.steps, r.states, r.measurement) for r in before[0]]
    assert (new.states(now), new.sources(now), new.fingerprint()) == before[1:]
    assert new.version == 4 and list(problems(tmp_path / "new")) == []
    with pytest.raises(DatasetError, match="nothing to migrate"):
        migrate(tmp_path / "new", tmp_path / "newer")
    assert Dataset(tmp_path / "old").version == version


def test_an_earlier_format_of_traces_is_rewritten_too(tmp_path: Path) -> None:
    name = write_dataset(tmp_path / "old", version=2)
    trace = json.dumps([["GetSBlock", [["GetSBlock", [], ["C", "main"], ["b0"]]]]])
    change_rows(
        trajectories_path(tmp_path / "old", name),
        lambda rows: [{**row, "steps": trace, "states": []} for row in rows],
    )
    count = len(Dataset(tmp_path / "old").trajectories(name))
    migrate(tmp_path / "old", tmp_path / "new")
    new = Dataset(tmp_path / "new")
    records = new.trajectories(*new.workload_ids)
    assert count == len(records) > 0 and {json.dumps(record.steps) for record in records} == {trace}


def test_the_card_describes_and_its_metadata_names_every_file(networks: Path) -> None:
    text = card(Dataset(networks), name="boards", license="cc-by-4.0")
    _, head, body = text.split("---\n", 2)
    assert 'license: "cc-by-4.0"' in head and '"n<1K"' in head
    configs = [line.split()[-1] for line in head.splitlines() if "config_name" in line]
    assert configs == ["trajectories", "workloads", "states"]
    patterns = [json.loads(line.split(":", 1)[1]) for line in head.splitlines() if "data_files" in line]
    found = {path for pattern in patterns for path in networks.glob(pattern)}
    assert found == set(networks.rglob("*.parquet"))
    assert "18 records of 6 programs, measured on 2 kinds of machine" in body
    assert "`llvm`" in body and "`cuda`" in body and "c (2)" in body


def test_hugging_face_loads_it_by_its_card(networks: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the Hugging Face loader is no dependency")
    (networks / "README.md").write_text(card(Dataset(networks), name="x"))
    records = datasets.load_dataset(str(networks), "trajectories", split="train", cache_dir=str(tmp_path))
    assert len(records) == 18 and {"workload_id", "steps", "seconds"} <= set(records.column_names)
    rows = datasets.load_dataset(str(networks), "workloads", split="train", cache_dir=str(tmp_path))
    assert set(records["workload_id"]) == set(rows["workload_id"])


def test_the_commands(networks: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "data_builder.cli.main", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    pytest.importorskip("matplotlib", reason="pictures need the extra `bench`")
    shown = run("stats", networks, "--png", tmp_path / "x" / "stats.png")
    assert shown.returncode == 0 and (tmp_path / "x" / "stats.png").read_bytes()[:4] == b"\x89PNG"
    assert run("split", networks, "--out", tmp_path / "p", "--parts", "a=0.5,b=0.5").returncode == 0
    assert run("leaks", tmp_path / "p" / "a", tmp_path / "p" / "b").returncode == 0
    leaking = run("leaks", tmp_path / "p" / "a", networks)
    assert leaking.returncode == 1 and "is in" in leaking.stdout
    merged = run("merge", tmp_path / "p" / "a", tmp_path / "p" / "b", "--out", tmp_path / "m")
    assert merged.returncode == 0, merged.stderr
    assert counts(tmp_path / "m") == counts(networks)
    assert run("card", tmp_path / "m").returncode == 0 and (tmp_path / "m" / "README.md").exists()
    assert run("validate", tmp_path / "m").returncode == 0
    wrong = run("dedupe", networks, "--out", tmp_path / "q", "--keep", "worst")
    assert wrong.returncode == 1 and "first, best, median" in wrong.stderr
    for bad in (["split", networks], ["merge", "--nonsense"], ["nosuch"]):
        refused = run(*bad)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr, refused.stderr


def test_a_time_of_a_quiet_machine_stays_before_one_of_a_disturbed(tmp_path: Path) -> None:
    lines = [record_line("k1", cost) for cost in (1e-3, 1.1e-3, 1.4e-3)]
    root = make(tmp_path, "whole", lines)
    (name,) = Dataset(root).workload_ids
    path = trajectories_path(root, name)
    table = pq.read_table(path, partitioning=None)
    marks = pa.array([False, True, True], pa.bool_())
    pq.write_table(table.set_column(table.schema.get_field_index("disturbed"), "disturbed", marks), path)
    for keep in ("best", "median", "first"):
        dedupe(root, tmp_path / keep, keep=keep)
        ((_, (record,)),) = Dataset(tmp_path / keep).iter_trajectories()
        assert record.measurement.seconds == 1e-3


def test_a_program_under_two_keys_goes_to_one_part(tmp_path: Path) -> None:
    """As dense layers have two, whose axes TVM or we have named."""
    root = make(tmp_path, "whole", [record_line(f"k{n}", 1e-3) for n in range(6)])
    dataset = Dataset(root)
    rows = [dict(dataset.row(workload_id)) for workload_id in dataset.workload_ids]
    with TableWriter(root / "workloads.parquet", WORKLOADS) as table:
        for row in rows:
            number = int(row["workload_key"][1:])
            axis = Iter("i0" if number % 2 else "i", 8 << (number // 2), "S")  # k0 and k1 are one, and so on
            stage = Stage("C", "compute", (axis,), (), (("Add", 1),), (axis.extent,))
            table.add({**row, "stages": Workload("", stages=(stage,)).stages_json()})
    parts = {"a": 0.34, "b": 0.33, "c": 0.33}
    split(root, tmp_path / "parts", parts, by="workload")
    folders = [tmp_path / "parts" / part for part in parts]
    for folder in folders:
        assert len({int(w.key[1:]) // 2 for w in Dataset(folder).workloads()}) == 1
    assert not list(leaks(folders, networks=False))
    for half in (0, 1):  # each has one of the two keys of every program
        keys = [f"k{n}" for n in range(half, 6, 2)]
        make(tmp_path, f"half{half}", [record_line(key, 1e-3) for key in keys])
        other = Dataset(tmp_path / f"half{half}")
        whole = [Dataset(root).row(workload_id) for workload_id in Dataset(root).workload_ids]
        kept = {row["workload_key"]: row["stages"] for row in whole}
        rows = [dict(other.row(workload_id)) for workload_id in other.workload_ids]
        with TableWriter(other.root / "workloads.parquet", WORKLOADS) as table:
            for row in rows:
                table.add({**row, "stages": kept[row["workload_key"]]})
    found = list(leaks([tmp_path / "half0", tmp_path / "half1"], networks=False))
    assert len(found) == 3 and all(one.startswith("program ") for one in found)


def test_a_part_s_fingerprint_has_the_logs_of_its_own_records(tmp_path: Path) -> None:
    a = make(tmp_path, "a", [record_line("k1", 1e-3)])
    b = make(tmp_path, "b", [record_line("k2", 1e-3)])
    merge([a, b], tmp_path / "both", print)
    split(tmp_path / "both", tmp_path / "parts", {"x": 0.5, "y": 0.5}, by="workload")
    x, y = (Dataset(tmp_path / "parts" / part).fingerprint() for part in "xy")
    assert len(x["sources"]) == len(y["sources"]) == 1 and x["sources"] != y["sources"]
    assert len(Dataset(tmp_path / "both").fingerprint()["sources"]) == 2


def test_networks_that_share_a_program_go_to_one_part(tmp_path: Path) -> None:
    """A workloads file of several models names all that have a task."""
    root = make(tmp_path, "whole", [record_line(f"k{n}", 1e-3) for n in range(6)])
    rows = [dict(Dataset(root).row(workload_id)) for workload_id in Dataset(root).workload_ids]
    with TableWriter(root / "workloads.parquet", WORKLOADS) as table:
        for row in rows:
            number = int(row["workload_key"][1:])
            both = ["resnet18", "resnet50"] if number == 0 else []
            network = ("resnet18", "resnet18", "resnet50", "resnet50", "bert", "gpt")[number]
            table.add({**row, "network": network, "networks": both})
    with pytest.raises(DatasetError, match="resnet18, resnet50 share a program"):
        split(root, tmp_path / "parts", parse_parts("test=resnet50,train=rest"))
    split(root, tmp_path / "parts", parse_parts("test=resnet50+resnet18,train=rest"))
    assert len(Dataset(tmp_path / "parts" / "test").workload_ids) == 4
    assert not list(leaks([tmp_path / "parts" / part for part in ("test", "train")]))
    assert len(set(networks_of(Dataset(root).workloads()))) == 3
    half = make(tmp_path, "half", [record_line("k7", 1e-3)])
    row = dict(Dataset(half).row(Dataset(half).workload_ids[0]))
    with TableWriter(half / "workloads.parquet", WORKLOADS) as table:
        table.add({**row, "network": "resnet50"})
    assert "network resnet50 is in" in next(leaks([tmp_path / "parts" / "test", half]))
