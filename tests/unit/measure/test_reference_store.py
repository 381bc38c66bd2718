"""References kept in a folder, of made-up libraries; no TVM."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from machines import SHAPES, Built

from wmsched.measure.reference_store import fits


def test_a_shelf_gives_what_was_put_also_to_another_process(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    assert shelf.get("a") is None
    shelf.put("a", built.library(2e-3), SHAPES)
    shelf.put("b", built.library(3e-3), SHAPES)
    shelf.believe(1e-3)
    for again in (shelf, built.shelf()):
        first = again.get("a")
        assert first is not None and (first.base, first.best) == (pytest.approx(2e-3), math.inf)
        second = again.get("b")
        assert second is not None and (second.base, second.best) == (pytest.approx(3e-3), 1e-3)
    assert [list(one) for one in built.loaded[-1][1]] == [list(one) for one in SHAPES]


def test_a_much_faster_program_takes_its_place(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    shelf.put("a", built.library(4e-3), SHAPES)
    old = shelf.get("a")
    assert old is not None
    old.base = 2e-3  # it was first timed on a machine twice as fast
    shelf.believe(0.7e-3)
    shelf.put("a", built.library(1e-3), SHAPES, old)
    new = shelf.get("a")
    assert new is not None and new.base == pytest.approx(0.5e-3)  # the scale stays
    assert new.best == 0.7e-3
    assert not [path for path in (tmp_path / "shelf").iterdir() if "." in path.name and path.is_dir()]


def test_no_path_is_loaded_for_two_programs(tmp_path: Path) -> None:
    """Of a path that is loaded the system gives a process the same library again, whatever lies there now."""
    built = Built(tmp_path)
    shelf = built.shelf()
    old = shelf.put("a", built.library(4e-3), SHAPES)
    for seconds in (2e-3, 1e-3):
        old = shelf.put("a", built.library(seconds), SHAPES, old)
    paths = [path for path, _ in built.loaded]
    assert len(set(paths)) == len(paths) == 3 and all(Path(path).suffix == ".tar" for path in paths)


def test_one_that_cannot_be_a_reference_is_none(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    old = shelf.put("a", built.library(4e-3), SHAPES)
    wrong = tmp_path / "program.tar"
    wrong.write_text("no number")
    assert shelf.put("a", wrong, SHAPES, old) is None and shelf.get("a") is None


def test_one_too_slow_is_not_kept(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    shelf.put("a", built.library(1.0), SHAPES)
    assert shelf.get("a") is None
    assert [path.name for path in (tmp_path / "shelf").iterdir()] == ["pulse.json"]


def test_one_that_ended_a_process_or_fails_is_dropped(tmp_path: Path) -> None:
    built = Built(tmp_path)
    built.shelf().put("a", built.library(2e-3), SHAPES)
    (tmp_path / "shelf" / "a" / "trial").touch()  # as a process leaves it that it has ended
    assert built.shelf().get("a") is None and not (tmp_path / "shelf" / "a").exists()

    built.shelf().put("b", built.library(2e-3), SHAPES)
    (library,) = (tmp_path / "shelf" / "b" / "library").iterdir()
    library.write_text("no number")
    assert built.shelf().get("b") is None and not (tmp_path / "shelf" / "b").exists()


def test_without_room_it_goes_without(tmp_path: Path, monkeypatch) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()

    def full(*given) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wmsched.measure.reference_store.shutil.copy2", full)
    shelf.put("a", built.library(2e-3), SHAPES)
    assert shelf.get("a") is None


def test_one_whose_folder_was_tidied_up_goes_on(tmp_path: Path) -> None:
    built = Built(tmp_path)
    shelf = built.shelf()
    shelf.put("a", built.library(2e-3), SHAPES)
    shutil.rmtree(tmp_path / "shelf")
    shelf.believe(1e-3)
    reference = shelf.get("a")
    assert reference is not None and reference.best == 1e-3


def test_large_arguments_are_not_kept() -> None:
    assert fits([([4, 4], "float32"), ([1 << 20], "bool")])
    assert not fits([([32000, 4096], "float32")])
    assert fits([([32000, 4096], "int8")])
