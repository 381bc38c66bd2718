"""The table of features, and what is made of it: lists of names, the page, the C++ reader's enum."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT
from matmul_columns import MATMUL
from trace_candidates import ANSOR, TARGETS, candidates, workload

from wmsched.features.hardware import gpu_columns, hardware_features
from wmsched.features.kernel import body_features, kernel_features, traffic, unrolled
from wmsched.features.parallel import SLOWDOWN
from wmsched.features.step_features import features, heaviest
from wmsched.features.table import (
    BODY,
    CARD,
    FEATURE_NAMES,
    FEATURE_TABLE,
    HARDWARE_NAMES,
    KERNEL,
    PHI,
    TRACE_NAMES,
    TRACES,
    TRAFFIC,
    pages,
)
from wmsched.features.table.__main__ import main
from wmsched.features.trace_features import trace_features
from wmsched.model.rows import column_names
from wmsched.schedules.loop_nest import LoopNest

COLUMNS = {column.name: column for column in FEATURE_TABLE}
NATIVE = ROOT / "wmsched" / "metaschedule" / "native"


def test_every_column_says_what_it_is() -> None:
    assert len(COLUMNS) == len(FEATURE_TABLE)
    for column in FEATURE_TABLE:
        assert all((column.name, column.unit, column.meaning, column.formula)), column
        assert column.scheduler in ("both", "AutoScheduler", "MetaSchedule")
        assert column.meaning.endswith(".") and not column.formula.endswith("."), column
        assert len(column.meaning.split()) < 45 and len(column.formula.split()) < 50, column
    assert all(group.note and group.title for group in (*PHI, *TRACES))


def test_the_page_is_made_of_the_table() -> None:
    made = f"{pages.COMMAND} --docs {pages.PAGE}"
    assert (ROOT / pages.PAGE).read_text(encoding="utf-8") == pages.page(), f"stale: {made}"


def test_the_header_is_made_of_the_table() -> None:
    made = f"{pages.COMMAND} --header {pages.HEADER}"
    assert (ROOT / pages.HEADER).read_text(encoding="utf-8") == pages.header(), f"stale: {made}"


def test_names_page_and_enum_are_the_same_columns() -> None:
    """Read from the files as they are, not as they would be made."""
    page = (ROOT / pages.PAGE).read_text(encoding="utf-8")
    header = (ROOT / pages.HEADER).read_text(encoding="utf-8")
    names = [*FEATURE_NAMES, *TRACE_NAMES, *HARDWARE_NAMES]
    assert re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE) == names
    assert column_names(dim=0, state="none", traces=True) == names
    enum = re.findall(r"^  k_(\w+),", header, re.MULTILINE)
    assert re.findall(r'^    "(\w+)",$', header, re.MULTILINE) == enum
    assert enum == [name for name in names if COLUMNS[name].native]


def test_the_cpp_fills_each_column_of_its_enum_and_no_other() -> None:
    """Columns that are counted up from one of a row (`k_split_0 + k`) stand next to each other."""
    sources = [path for path in NATIVE.glob("*.h") if path.name != "columns_enum.h"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    enum = [column.name for column in pages.native_columns()]
    used = set(re.findall(r"\bk_(\w+)", text))
    assert used <= set(enum)
    rows = set(re.findall(r"k_(\w+?)(?:0|l1) \+ ", text))
    assert {"split_", "main_extent_", "traffic_", "reduce_stride_"} <= rows
    for start in rows:
        row = [name for name in enum if re.fullmatch(rf"{start}(?:\d|l\d)", name)]
        assert enum[enum.index(row[0]) :][: len(row)] == row and row[0] in used
        used |= set(row)
    assert used == set(enum)


@pytest.mark.parametrize(
    "bundle", sorted((ROOT / "wmsched" / "bundles").glob("*/config.json")), ids=lambda p: p.parent.name
)
def test_shipped_bundles_have_the_tables_names_in_its_order(bundle: Path) -> None:
    names = [name for name in json.loads(bundle.read_text())["features"] if not name.startswith("z.")]
    traces = bool(set(names) & set(TRACE_NAMES))
    known = [*FEATURE_NAMES, *(TRACE_NAMES if traces else ()), *HARDWARE_NAMES]
    assert sorted(names) == sorted(known)
    # trained before this column was, which was put at the end
    names, known = ([name for name in some if name != SLOWDOWN] for some in (names, known))
    assert names == known


def test_groups_are_what_their_functions_compute() -> None:
    nest = LoopNest(MATMUL.stages)
    for step in (["SP", 2, 1, 64, [16], 1], ["AN", 2, 2, 2]):
        nest.apply(step)
    stage, _ = heaviest(nest)
    assert stage is not None
    loops = [loop for loop in stage.loops if loop.extent != 1]
    start, _ = unrolled(stage, loops)
    assert set(kernel_features(stage, loops, stage.reads)) == set(KERNEL.names)
    assert set(body_features(stage, loops, start, stage.reads)) == set(BODY.names)
    assert set(traffic(stage, loops)) == set(TRAFFIC.names)
    assert tuple(gpu_columns(TARGETS["cuda"])) == CARD.names


def test_values_are_of_their_units() -> None:
    """Of schedules of both schedulers, on a CPU and on a GPU."""
    seen: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}

    def see(names: tuple[str, ...], rows: np.ndarray) -> None:
        for name, values in zip(names, rows.T):
            seen[name].append(values[~np.isnan(values)])

    for target in TARGETS:
        see(HARDWARE_NAMES, hardware_features(workload(target, "mm"))[None])
        for name in ("mm", "conv"):
            some = candidates(target, name)
            if some:
                phi, extra, _ = trace_features(some, workload(target, name), threads=4)
                see(FEATURE_NAMES, phi)
                see(TRACE_NAMES, extra)
                ansors = [column for column in FEATURE_TABLE if column.scheduler == "AutoScheduler"]
                assert not any(phi[:, FEATURE_NAMES.index(column.name)].any() for column in ansors)
    see(FEATURE_NAMES, features([ANSOR, ANSOR[:4]], MATMUL, threads=4)[0])
    for name, parts in seen.items():
        values, unit = np.concatenate(parts), COLUMNS[name].unit
        if unit == "0 or 1":
            assert set(values.tolist()) <= {0.0, 1.0}, name
        elif unit == "share":
            assert ((values >= 0) & (values <= 1)).all(), name
        elif unit.startswith("log2(1 + ") and not unit.endswith("-1"):
            assert (values >= 0).all(), name
        elif unit in ("steps", "loops", "stages", "blocks", "instructions", "intrinsics", "reads"):
            assert (values == np.round(values)).all() and (values >= 0).all(), name
    assert sum(part.size > 0 for parts in seen.values() for part in parts) > len(COLUMNS)


def test_the_command_writes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, header = tmp_path / "f.md", tmp_path / "c.h"
    assert main(["--docs", str(page), "--header", str(header)]) == 0
    assert page.read_text(encoding="utf-8") == pages.page()
    assert header.read_text(encoding="utf-8") == pages.header()
    assert main(["--docs", str(tmp_path / "no" / "f.md")]) == 2
    assert "is its folder there?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
