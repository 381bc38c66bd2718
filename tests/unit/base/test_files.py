"""Files that are there whole or not at all, and caches that cannot be written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from wmsched.base.files import PARTIAL_SUFFIX, atomic_open, atomic_path, is_partial, try_write


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "scores"
    path.write_text("old")
    with atomic_open(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        (beside,) = set(tmp_path.iterdir()) - {path}
        assert beside.name.startswith(".scores-") and beside.name.endswith(PARTIAL_SUFFIX)
    assert path.read_text() == "new"
    with pytest.raises(KeyboardInterrupt), atomic_open(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_two_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    with atomic_open(path) as first:
        first.write(b"first, ")
        with atomic_open(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
        first.write(b"later")
    assert path.read_bytes() == b"first, later" and list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    for text in (b"one", b"two"):
        with atomic_open(tmp_path / "link") as file:
            file.write(text)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder" / "file").read_bytes() == b"two"
    assert len(list((tmp_path / "folder").iterdir())) == 1


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with atomic_open(pipe) as file:
        file.write(b"scores")
    reader.join(10)
    assert read == [b"scores"] and pipe.is_fifo()


def test_a_folder_that_is_none_is_told_by_the_name_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as found, atomic_open(path):
        raise AssertionError("opened")
    assert found.value.filename == str(path)


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog) -> None:
    assert try_write(tmp_path / "new" / "cache", lambda file: file.write(b"rows")) and not caplog.messages
    assert (tmp_path / "new" / "cache").read_bytes() == b"rows"
    (tmp_path / "file").touch()

    def full(file) -> None:
        raise OSError(28, "No space left on device")

    assert not try_write(tmp_path / "file" / "cache", lambda file: pytest.fail("opened"))
    assert not try_write(tmp_path / "new" / "cache", full)
    assert "file/cache cannot be written (" in caplog.messages[0]
    assert "(No space left on device), so what it is to keep is computed anew" in caplog.messages[1]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cache"]
    assert (tmp_path / "new" / "cache").read_bytes() == b"rows"


def test_a_file_that_another_program_makes_is_placed_when_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_text("old")
    with atomic_path(path) as fresh:
        fresh.write_text("new")
        assert is_partial(fresh) and path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(RuntimeError), atomic_path(path) as fresh:
        fresh.write_text("half")
        raise RuntimeError
    with pytest.raises(FileNotFoundError), atomic_path(path):
        pass  # nothing was made
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path] and not is_partial(path)
