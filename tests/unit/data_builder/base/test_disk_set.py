"""The set that moves to a file gives the answers of one that does not."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from data_builder.base.disk_set import DiskSet


@given(st.lists(st.integers(0, 40), max_size=120), st.integers(1, 9))
def test_it_answers_as_a_set_does(numbers: list[int], limit: int) -> None:
    plain: set[int] = set()
    with DiskSet(limit) as seen:
        for number in numbers:
            assert seen.add(b"%016d" % number) == (number not in plain)
            plain.add(number)
        assert len(seen._held) < limit


def test_its_file_is_gone_afterwards(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with DiskSet(2) as seen:
        for number in range(5):
            seen.add(b"%016d" % number)
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
