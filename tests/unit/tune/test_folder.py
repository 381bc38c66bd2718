"""A folder of a model's tuning goes on as it began: how its candidates are compiled, on how many threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from wmsched.schedules import database
from wmsched.tune import folder as tuned_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / database.RECORDS).write_text("[0, []]\n")
    return tmp_path


def test_a_folder_goes_on_with_its_settings(folder: Path) -> None:
    tuned_folder.describe(folder, {"vector_math": True, "pack_weights": False})
    wanted = {"vector_math": True, "pack_weights": True, "cold_caches": True}
    found, notes = tuned_folder.settled(folder, wanted)
    assert found == {"vector_math": True, "pack_weights": False, "cold_caches": False}
    assert len(notes) == 2 and "begun without --pack-weights and goes on so" in notes[0]


def test_a_folder_goes_on_with_its_threads(folder: Path) -> None:
    tuned_folder.describe(folder, {"threads": 2})
    assert tuned_folder.settled_threads(folder, 2, before=1) == (2, [])
    found, notes = tuned_folder.settled_threads(folder, 4, before=1)
    assert found == 2 and notes == [
        f"{folder} was begun on 2 threads and goes on so; another --out is tuned on 4"
    ]
    tuned_folder.describe(folder, {"model": "net"})  # from before it was written down
    found, notes = tuned_folder.settled_threads(folder, 4, before=1)
    assert found == 1 and "begun on 1 thread and" in notes[0]


@pytest.mark.parametrize("text", [None, "", "[]", '{"threads": "two"}', '{"threads": 0}'])
def test_a_folder_that_says_nothing_is_as_wanted(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / tuned_folder.ABOUT).write_text(text)
    assert tuned_folder.settled_threads(folder, 4, before=4) == (4, [])


def test_a_folder_without_records_is_as_wanted(tmp_path: Path) -> None:
    tuned_folder.describe(tmp_path, {"threads": 1, "vector_math": False})
    assert tuned_folder.settled_threads(tmp_path, 4, before=1) == (4, [])
    assert tuned_folder.settled(tmp_path, {"vector_math": True}) == ({"vector_math": True}, [])


def test_a_folder_knows_how_long_was_searched_for_it(folder: Path) -> None:
    assert tuned_folder.searched_before(folder) == 0
    for text, seconds in (('{"search_seconds": 61.5}', 61.5), ("{}", 0), ("[]", 0), ("{", 0)):
        (folder / tuned_folder.REPORT).write_text(text)
        assert tuned_folder.searched_before(folder) == seconds


def test_what_a_folder_of_somebody_elses_holds_stays(tmp_path: Path) -> None:
    """`--out .` in a project: a build folder of its own, or of another program's."""
    (tmp_path / ".build-release").mkdir()
    (tmp_path / ".notes.partial").touch()
    with tuned_folder.opened(tmp_path, {}, resume=False):
        assert (tmp_path / ".build-release").is_dir() and (tmp_path / ".notes.partial").is_file()
