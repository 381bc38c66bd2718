"""Damaged lines: no crash, no hang, none unaccounted for.

The slow test reads a million. With atheris installed (it is no dependency) coverage guides the damage:
``PYTHONPATH=tests/support python tests/unit/data_builder/read/fuzz_atheris.py -max_total_time=600``.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from pathlib import Path

import pytest
from dataset_files import quiet
from fuzzed_lines import check_line
from hypothesis import given, settings
from hypothesis import strategies as st
from mutate import mutate, seeds

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.derive.validate import problems
from wmsched.base.errors import DatasetError
from wmsched.learn.data.dataset import Dataset

SEEDS = seeds()


@given(st.randoms(use_true_random=False), st.sampled_from(SEEDS), st.sampled_from(SEEDS))
@settings(max_examples=300)
def test_a_damaged_line_is_a_record_or_has_a_reason(chance, line: bytes, other: bytes) -> None:
    check_line(mutate(line, other, chance))


def test_the_seeds_are_good_and_damage_leaves_some_so() -> None:
    assert all(check_line(line) for line in SEEDS)
    chance = random.Random(0)
    good = sum(check_line(mutate(chance.choice(SEEDS), chance.choice(SEEDS), chance)) for _ in range(2000))
    assert 300 < good < 1700  # the tests above meet both


def build_damaged(lines: list[bytes], count: int, root: Path, *, seed: int) -> dict:
    """Build from `count` damaged lines and check that each is in one of the totals."""
    chance = random.Random(seed)
    log = root / "log.json.gz"
    with gzip.open(log, "wb", compresslevel=1) as stream:
        for _ in range(count):
            stream.write(mutate(chance.choice(lines), chance.choice(lines), chance) + b"\n")
    report = quiet()
    manifest = build([str(log)], root / "ds", BuildOptions(jobs=1), report)
    (source,) = manifest["sources"]
    assert source["lines"] + source["comments"] == count
    parts = ("records", "bad", "duplicates", "excluded")
    assert source["lines"] == sum(source[part] for part in parts)
    told = {int(text.partition(": ")[0].rpartition(":")[2]) for text in report.problems}
    assert len(told) >= source["bad"] + source["duplicates"]  # each with its own line number
    return manifest


def test_every_damaged_line_of_a_log_ends_in_a_total(tmp_path: Path) -> None:
    manifest = build_damaged(SEEDS, 4000, tmp_path, seed=1)
    assert manifest["totals"]["records"] > 500 and manifest["totals"]["bad"] > 500
    assert list(problems(tmp_path / "ds")) == []
    outside = [path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "ds")]
    assert [path.name for path in outside] == ["log.json.gz"]  # no workload's name led anywhere
    dataset = Dataset(tmp_path / "ds")
    assert all(json.dumps(workload.key) for workload in dataset.workloads())


def test_nothing_but_damage_is_no_dataset_but_a_reason(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_bytes(b"\xff\n" * 9)
    report = quiet()
    with pytest.raises(DatasetError, match="9 lines, none of them a record"):
        build([str(tmp_path / "log.json")], tmp_path / "ds", BuildOptions(jobs=1), report)
    assert len(report.problems) == 9


@pytest.mark.slow
def test_a_million_damaged_lines_of_real_logs(shared_data: Path, tmp_path: Path) -> None:
    lines = list(SEEDS)
    for path in sorted(shared_data.rglob("measure_records/*.gz"))[::4]:
        lines += gzip.decompress(path.read_bytes()).splitlines()[:8]
    begin = time.monotonic()
    manifest = build_damaged(lines, 1_000_000, tmp_path, seed=2)
    print({**manifest["totals"], "seconds": round(time.monotonic() - begin)})
    assert manifest["totals"]["records"] > 100_000
