"""The shipped benchmark tasks: complete, findable without TVM, and kept apart from training."""

import gzip
import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks import suites
from benchmarks.models.export import label, operators, shapes, write
from wmsched import zoo
from wmsched.base.errors import UnknownName

# The shared training data has these two under other networks' names (a classifier of equal shape in
# Inception-v3 and in ResNet-18); the leak check refuses a model that was trained on them.
SHARED_WITH_TRAINING_DATA = {"resnet50/24", "resnet3d18/15"}


def test_the_models_and_their_numbers_of_tasks():
    assert Counter(row["model"] for row in zoo.rows()) == {
        "resnet50": 27,
        "bert-base": 9,
        "mobilenetv2": 32,
        "gpt2": 9,
        "resnet3d18": 17,
        "opt-1.3b-attention": 4,
        "gpt-neo-2.7b-attention": 5,
    }


def test_rows_are_whole():
    for row in zoo.rows():
        assert row["name"] == f"{row['model']}/{row['index']}"
        assert row["weight"] >= 1
        assert row["flop_ct"] > 0 or "pool" in row["ops"]  # which TVM does not count: -1
        assert json.loads(row["workload_key"])[0] and row["tensors"]["nodes"]
        assert row["layout_rewrite"] == 2
        # a dense layer has another name in logs of TVM's own extraction
        assert (row["upstream_key"] is not None) == row["ops"].startswith("dense")
        # MetaSchedule is benchmarked on the representatives
        assert (row["tensorir_key"] is not None) == bool(row["type"])
        names = ("workload_key", "upstream_key", "tensorir_key")
        assert zoo.keys(row) == [row[name] for name in names if row[name]]


def test_each_type_has_its_one_task_as_the_suite_says():
    found = {row["type"]: row for row in zoo.representatives()}
    assert len(found) == len(zoo.representatives()) == 22
    assert list(found) == zoo.types()
    for entry in suites.REPRESENTATIVES:
        row = found[entry.type]
        assert (row["model"], row["index"], row["ops"]) == (entry.model, entry.index, entry.ops)
        assert shapes(row["workload_key"]) == entry.shapes
    assert len({row["workload_key"] for row in found.values()}) == 22


@pytest.mark.parametrize(
    ("name", "count"),
    [("resnet50/6", 1), ("Conv2d-ReLU", 1), ("gpt2", 9), ("representatives", 22), ("all", 103)],
)
def test_tasks_are_found_by_any_name(name, count):
    assert len(zoo.find(name)) == count


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(UnknownName, match="resnet50"):
        zoo.find("resnet-50")


def test_rows_are_the_callers_own():
    zoo.rows()[0]["tensors"]["nodes"].clear()
    assert zoo.rows()[0]["tensors"]["nodes"]


def test_reading_the_tasks_imports_neither_tvm_nor_torch():
    code = "import sys; from wmsched import zoo; zoo.rows(); print({'tvm', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_the_training_data_has_of_the_benchmark_is_known(shared_data):
    workloads = (shared_data / "x86-spr-2core" / "workloads.json.gz").read_bytes()
    trained = {row["workload_key"] for row in json.loads(gzip.decompress(workloads))}
    assert {row["name"] for row in zoo.rows() if trained & set(zoo.keys(row))} == SHARED_WITH_TRAINING_DATA


@pytest.mark.parametrize(
    ("desc", "ops"),
    [
        ("vm_mod_fused_nn_conv2d_add_nn_relu_5", "conv2d_add_relu"),
        ("vm_mod_fused_mean_1,vm_mod_fused_mean", "mean"),
        ("vm_mod_fused_nn_contrib_conv2d_winograd_without_weight_transform_add", None),
        ("vm_mod_fused_nn_adaptive_avg_pool2d", "adaptive_avg_pool2d"),
    ],
)
def test_operators_of_a_fused_function(desc, ops):
    expected = ops or "contrib_conv2d_winograd_without_weight_transform_add"
    assert operators(desc) == expected


def test_a_suite_that_matches_nothing_or_another_place_is_refused():
    rows = zoo.rows()
    entry = suites.REPRESENTATIVES[0]
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    with pytest.raises(ValueError, match="matches 0 tasks"):
        label(rows, (suites.Representative(**fields | {"ops": "conv4d"}),))
    with pytest.raises(ValueError, match="not index 99"):
        label(rows, (suites.Representative(**fields | {"index": 99}),))


def test_equal_rows_are_equal_bytes(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "tensorir_key"} for row in zoo.rows()]
    write(rows, tmp_path / "a.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == zoo.PATH.read_bytes()
