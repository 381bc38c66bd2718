"""One process at a time."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from wmsched.base.errors import LogError, WmschedError
from wmsched.base.files import locked


def test_the_second_is_told_and_the_third_may(tmp_path: Path) -> None:
    lock, log = tmp_path / "new" / ".log.lock", tmp_path / "log.json"
    with locked(lock, whose=log, option="--log"):
        second = locked(lock, whose=log, option="--log", error=LogError)
        with pytest.raises(LogError, match=r"another run is writing .*log\.json; .* another --log"), second:
            raise AssertionError("two at a time")
        assert lock.is_file()
    assert not lock.exists()
    with pytest.raises(KeyError), locked(lock, whose=log, option="--log"):
        raise KeyError
    with locked(lock, whose=log, option="--log"):
        pass


def test_a_lock_that_a_killed_run_left_is_free(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    with locked(lock, whose=tmp_path, option="--out"):
        assert lock.is_file()


def test_a_folder_that_is_none_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    no = locked(tmp_path / "file" / ".lock", whose=tmp_path / "file", option="--out")
    with pytest.raises(WmschedError, match=r"cannot be written: .*another --out"), no:
        raise AssertionError("no lock")


def test_where_there_are_no_locks_it_goes_on(tmp_path: Path, monkeypatch) -> None:
    def unknown(stream, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with locked(tmp_path / ".lock", whose=tmp_path, option="--out"):
        pass


@pytest.mark.parametrize("others", [False, True], ids=["removed", "removed, and made anew"])
def test_a_lock_that_its_holder_removes_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch, others) -> None:
    """Between opening and locking, the holder ends: what is locked has no name, and keeps nobody out."""
    lock, tries = tmp_path / ".lock", []
    flock = fcntl.flock

    def late(stream, how):
        if not tries:
            lock.unlink()
            if others:
                lock.touch()
        tries.append(stream)
        flock(stream, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(lock, whose=tmp_path, option="--out"):
        assert len(tries) == 2 and tries[0].closed
        second = locked(lock, whose=tmp_path, option="--out")
        with pytest.raises(WmschedError, match="another run is writing"), second:
            raise AssertionError("two at a time")
    assert not lock.exists()
