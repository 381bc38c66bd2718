"""TpuGraphs' npz files: written and read back, real records too; bad files are refused with reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_graphs import make_tile
from tpu_records import read_layout_record, read_tile_records

from wmsched.base.errors import DatasetError
from wmsched.graph import LayoutGraph, TileGraph, generate_layout, read_graph, write_graph
from wmsched.graph.collection import graph_files, load_split, read_indices, select_indices


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        assert field.name == "name" or ours.dtype == theirs.dtype


@pytest.mark.parametrize("make", [lambda: generate_layout(seed=3, name="a"), lambda: make_tile("a")])
def test_what_is_written_is_read_back(tmp_path: Path, make: Callable[[], LayoutGraph | TileGraph]) -> None:
    graph = make()
    write_graph(tmp_path / "deep" / "a.npz", graph)
    assert_same(read_graph(tmp_path / "deep" / "a.npz"), graph)


def test_other_types_and_further_keys_are_read_alike(tmp_path: Path) -> None:
    """The files of TpuGraphs have opcodes of one byte and configurations in floats."""
    graph = generate_layout(seed=1, name="a")
    write_graph(tmp_path / "a.npz", graph)
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    arrays |= {
        "node_opcode": arrays["node_opcode"].astype(np.uint8),
        "node_config_feat": arrays["node_config_feat"].astype(np.float32),
        "config_runtime": arrays["config_runtime"].astype(np.int32),
        "node_splits": np.array([[0, 4]]),
        "of_somebody_else": np.zeros(3),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    found = read_graph(tmp_path / "a.npz")
    assert isinstance(found, LayoutGraph)
    assert found.node_splits.tolist() == [0, 4]
    np.testing.assert_array_equal(found.configs, graph.configs)


def test_further_groups_of_six_columns_are_kept(tmp_path: Path) -> None:
    graph = generate_layout(seed=1, name="a", configs=4)
    wide = np.concatenate([graph.configs, graph.configs[:, :, :1]], axis=2)
    write_graph(tmp_path / "a.npz", LayoutGraph(**{**vars(graph), "configs": wide}))
    found = read_graph(tmp_path / "a.npz")
    assert isinstance(found, LayoutGraph)
    assert found.node_config_feat.shape[2] == 24


BAD: list[tuple[dict[str, Any], str]] = [
    ({"node_feat": np.zeros((13, 100))}, r"node_feat has shape \(13, 100\), not \(any, 140\)"),
    ({"node_feat": np.full((13, 140), np.nan)}, "node_feat has 1820 values that are not finite"),
    ({"node_feat": np.zeros((0, 140))}, "node_feat has no rows"),
    ({"node_opcode": np.zeros(4)}, r"node_opcode has shape \(4,\), not \(13\)"),
    ({"node_opcode": np.full(13, -3)}, "node_opcode has values of -3 to -3, not of 0"),
    ({"edge_index": np.array([[0, 13]])}, "edge_index has values of 0 to 13, not of 0 to 12"),
    ({"edge_index": np.zeros((2, 9))}, r"edge_index has shape \(2, 9\), not \(any, 2\)"),
    ({"edge_index": np.array([[0.5, 1]])}, "edge_index has values that are no whole numbers"),
    ({"node_config_ids": np.zeros(10, int)}, "node_config_ids names a node twice"),
    ({"node_config_ids": np.arange(3)}, r"node_config_feat has shape \(8, 10, 18\), not \(any, 3, any\)"),
    ({"node_config_feat": np.full((8, 10, 18), 6)}, "value 6 is no whole number of -1..5"),
    ({"node_config_feat": np.zeros((8, 10, 17))}, "has 17 columns, no multiple of 6"),
    ({"node_config_feat": np.zeros((0, 10, 18)), "config_runtime": np.zeros(0)}, "of no configuration"),
    ({"config_runtime": np.zeros(7, int)}, r"config_runtime has shape \(7,\), not \(8\)"),
    ({"config_runtime": np.full(8, -1)}, "config_runtime has values of -1 to -1"),
    ({"config_runtime": np.array(["x"] * 8)}, "config_runtime is of type <U1, not numbers"),
    ({"node_config_ids": None}, "a layout file without node_config_ids"),
    ({"node_config_feat": None}, "a tile file without config_feat, config_runtime_normalizers"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[f"{message[:40]}" for _, message in BAD])
def test_a_bad_file_is_refused_by_key_value_and_place(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_graph(tmp_path / "a.npz", generate_layout(seed=1, configs=8))
    with np.load(tmp_path / "a.npz") as file:
        arrays = {key: value for key, value in {**dict(file), **change}.items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DatasetError, match=message) as raised:
        read_graph(tmp_path / "a.npz")
    assert str(tmp_path / "a.npz") in str(raised.value)
    assert "extract it from its archive again" in str(raised.value)


def test_damaged_missing_and_pickled_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(DatasetError, match="no such file"):
        read_graph(path)
    write_graph(path, generate_layout(seed=1))
    whole = path.read_bytes()
    for content in (b"", b"no archive", whole[: len(whole) // 2], whole[:200] + bytes(400) + whole[600:]):
        path.write_bytes(content)
        with pytest.raises(DatasetError):
            read_graph(path)
    np.savez(path, node_feat=np.array([object()]), allow_pickle=True)
    with pytest.raises(DatasetError, match="no readable npz file"):
        read_graph(path)


def test_a_folder_without_files_and_one_of_both_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no npz files; name a collection's folder"):
        graph_files(tmp_path, "train")
    write_graph(tmp_path / "train" / "a.npz", generate_layout(seed=1))
    write_graph(tmp_path / "train" / "b.npz", make_tile())
    with pytest.raises(DatasetError, match="has layout and tile files"):
        load_split(tmp_path, "train", for_training=True)
    assert [path.name for path in graph_files(tmp_path / "train", "all")] == ["a.npz", "b.npz"]


def test_fixed_indices_restrict_and_order_the_configurations(tmp_path: Path) -> None:
    (tmp_path / "i.json").write_text('{"generated-5": [3, 1, 7], "kernel": [2, 0]}')
    indices = read_indices(tmp_path / "i.json")
    layout, tile = generate_layout(seed=5), make_tile()
    first, second = select_indices([layout, tile], indices)
    np.testing.assert_array_equal(first.config_runtime, layout.config_runtime[[3, 1, 7]])
    assert isinstance(first, LayoutGraph) and isinstance(second, TileGraph)
    np.testing.assert_array_equal(first.configs, layout.configs[[3, 1, 7]])
    np.testing.assert_array_equal(second.config_feat, tile.config_feat[[2, 0]])
    with pytest.raises(DatasetError, match="generated-6 is not among the indices"):
        list(select_indices([generate_layout(seed=6)], indices))
    with pytest.raises(DatasetError, match="index 7 of 4 configurations"):
        list(select_indices([generate_layout(seed=5, configs=4)], indices))
    for content in ("", "[1]", '{"a": [-1]}', '{"a": []}', '{"a": [[1]]}', '{"a": ["x"]}'):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(DatasetError, match="download it again"):
            read_indices(tmp_path / "bad.json")


def test_a_real_layout_graph_is_written_and_read(records: Path, tmp_path: Path) -> None:
    graph, _ = read_layout_record(records / "module_tuning_data_layout.pb")
    assert graph.node_feat.shape == (3163, 140)
    assert graph.configs.shape == (112, 62, 3)  # 10 of the 122 runs have failed
    assert graph.config_runtime.min() / 1e9 == pytest.approx(0.9109, abs=1e-4)
    assert graph.config_runtime.max() / 1e9 == pytest.approx(0.9256, abs=1e-4)
    # convolutions and reshapes, as section 2.2.1 says of what is configurable
    assert set(graph.node_opcode[graph.node_config_ids].tolist()) == {26, 75}
    path = tmp_path / f"{graph.name}.npz"
    write_graph(path, graph)
    assert_same(read_graph(path), graph)


def test_real_tile_kernels_are_written_and_read(records: Path, tmp_path: Path) -> None:
    kernels = read_tile_records(records / "op_tuning_data.pb")
    assert len(kernels) == 15
    assert sorted(len(kernel.node_feat) for kernel in kernels)[::14] == [2, 56]
    assert sum(len(kernel.config_runtime) for kernel in kernels) == 752  # of 754 runs, 2 have failed
    for kernel in kernels:
        write_graph(tmp_path / f"{kernel.name}.npz", kernel)
        assert_same(read_graph(tmp_path / f"{kernel.name}.npz"), kernel)
