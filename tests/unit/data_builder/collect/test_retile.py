"""`data_builder.collect.retile`: other register tiles of measured schedules. What they run like is TVM's to
say."""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
from pathlib import Path

import pytest
from checkout import ROOT

from data_builder.collect.collect import WORKLOADS
from data_builder.collect.remeasure import RemeasureOptions
from data_builder.collect.retile import VaryOptions, lengths, propose, tiled_anew, vary
from data_builder.read.workloads import every_row
from wmsched.base.errors import DatasetError, LogError
from wmsched.features.vector_width import AVX2, AVX512

SAMPLES = ROOT / "data_builder" / "samples"


def steps(rows: int = 14, columns: int = 64) -> list[list]:
    """A convolution's tiles: rows and columns at three levels, the reduction at one; and a consumer's."""
    return [
        ["CI", 5],
        ["SP", 3, 0, 1, [1, 1, 1], 1],
        ["SP", 3, 4, rows, [1, 1, 7], 1],
        ["SP", 3, 8, columns, [2, 1, 16], 1],
        ["SP", 3, 12, 256, [4], 1],
        ["SP", 9, 0, 8, [2, 2, 2], 1],
        ["AN", 3, 11, 2],
    ]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The sample's logs, with a copy of one that is not compressed."""
    folder = tmp_path / "logs"
    shutil.copytree(SAMPLES, folder)
    log = sorted((folder / "measure_records").iterdir())[0]
    log.with_suffix("").write_bytes(gzip.decompress(log.read_bytes()))
    log.unlink()
    return folder


def schedules(log: Path) -> list[str]:
    """Of each line the task and the steps."""
    text = gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()
    return [json.dumps(json.loads(line)["i"]) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("extent", "levels", "inner", "expected"),
    [
        (64, [2, 1, 16], 8, [2, 2, 8]),  # the inner two levels are as long as before
        (64, [2, 1, 16], 32, [1, 1, 32]),  # the block is
        (14, [1, 1, 7], 2, [1, 1, 2]),  # neither: 2 rows, and a block of 6 does not divide 14
        (56, [1, 1, 7], 2, [2, 1, 2]),
        (14, [1, 1, 2], 14, [1, 1, 14]),  # longer than the block was
    ],
)
def test_the_levels_of_an_axis_divide_it(extent, levels, inner, expected):
    found = lengths(extent, levels, inner)
    assert found == expected
    assert extent % math.prod(found) == 0


@pytest.mark.parametrize("core", [AVX2, AVX512])
def test_tiles_differ_fill_whole_registers_and_nothing_else_changes(core):
    before = steps()
    found = list(tiled_anew(before, core, random.Random(0), most=20))
    assert len(found) > 4
    tiles = [(one[2][4][-1], one[3][4][-1]) for one in found]
    assert len(set(tiles)) == len(tiles)
    for one, (rows, columns) in zip(found, tiles, strict=True):
        assert columns % core.lanes == 0
        assert 0.3 <= rows * columns / core.lanes / core.number <= 1.75
        assert 14 % math.prod(one[2][4]) == 0 and 64 % math.prod(one[3][4]) == 0
        one[2][4], one[3][4] = before[2][4], before[3][4]
        assert one == before
    assert before == steps()


def test_those_that_fit_come_first():
    for seed in range(10):
        (one,) = tiled_anew(steps(rows=56), AVX2, random.Random(seed), most=1)
        assert 0.5 <= one[2][4][-1] * one[3][4][-1] / 8 / 16 <= 1.0


def test_schedules_without_such_tiles_have_no_variants():
    no_reduction = [step for step in steps() if len(step) < 5 or len(step[4]) != 1]
    for given in (no_reduction, steps(columns=3), [["CI", 1]], []):
        assert list(tiled_anew(given, AVX2, random.Random(0), most=5)) == []


def test_proposals_are_new_and_the_same_each_time(source: Path, tmp_path: Path):
    options = VaryOptions(each=4, best=2)
    count = propose(source, tmp_path / "a", options)
    assert propose(source, tmp_path / "b", options) == count > 0
    propose(source, tmp_path / "c", VaryOptions(each=4, best=2, seed=1))
    logs = {log.name: log for log in (tmp_path / "a" / "measure_records").iterdir()}
    assert sum(len(schedules(log)) for log in logs.values()) == count
    assert {row["log"] for row in every_row(tmp_path / "a" / WORKLOADS)} == set(logs)
    for old in (source / "measure_records").iterdir():
        if new := logs.pop(old.name.removesuffix(".gz"), None):
            found = schedules(new)
            assert len(set(found)) == len(found) <= 4
            assert not set(found) & set(schedules(old))
            assert new.read_bytes() == (tmp_path / "b" / "measure_records" / new.name).read_bytes()
    assert not logs
    assert any(
        log.read_bytes() != (tmp_path / "c" / "measure_records" / log.name).read_bytes()
        for log in (tmp_path / "a" / "measure_records").iterdir()
    )


def test_what_cannot_be_varied_is_refused(source: Path, tmp_path: Path):
    with pytest.raises(DatasetError, match="choose another --out"):
        vary(source, source, VaryOptions(), RemeasureOptions(), None)
    logs = sorted((source / "measure_records").iterdir())
    for log in logs:
        log.write_bytes(gzip.compress(b"") if log.suffix == ".gz" else b"")
    with pytest.raises(DatasetError, match="there is nothing to vary"):
        propose(source, tmp_path / "out", VaryOptions())
    logs[0].write_text("{\n")
    with pytest.raises(LogError, match=logs[0].name):
        propose(source, tmp_path / "out", VaryOptions())
    (source / "measure_records" / "stranger.json").write_text("")
    logs[0].write_text("")
    with pytest.raises(DatasetError, match=r"no workload for the log stranger\.json"):
        propose(source, tmp_path / "out", VaryOptions())
