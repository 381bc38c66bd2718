"""The memory that a process may still take."""

from __future__ import annotations

from pathlib import Path

import pytest

from wmsched.base import cores, memory


@pytest.mark.parametrize(("folder", "limit", "used"), [
    ("", "memory.max", "memory.current"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
])  # fmt: skip
def test_a_container_has_no_more_than_its_limit_leaves(
    folder: str, limit: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    assert memory.available_bytes() > 1 << 20  # no limit is told
    where = tmp_path / folder
    where.mkdir(exist_ok=True)
    (where / used).write_text("900000\n")
    (where / limit).write_text("1000000\n")
    assert memory.available_bytes() == 100_000
    (where / "memory.stat").write_text("anon 5\ninactive_file 50000\nactive_file 7\n")
    assert memory.available_bytes() == 150_000
    (where / limit).write_text("max\n")
    assert memory.available_bytes() > 1 << 20
