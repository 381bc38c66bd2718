"""`wmsched tune MODEL` where disk, linker or user stop it: the model is not blamed, what was made stays."""

from __future__ import annotations

import json
import math
import os
import signal
import time

import pytest
from tuning_models import made_up, run

from wmsched.base.errors import EnvironmentProblem, WmschedError
from wmsched.relax.passes import pipeline
from wmsched.schedules.database import RECORDS
from wmsched.tune import builds, in_model_selection, prepare


@pytest.fixture
def no_linker(tmp_path, monkeypatch):
    """A compiler that ends as `ld` does on a full disk, after a name for each of many files."""
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'ld: final link failed: No space left on device' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))


def test_a_disk_that_is_full_at_first_is_no_fault_of_the_models(files, tmp_path, no_linker) -> None:
    with pytest.raises(EnvironmentProblem, match=r"cannot be linked .*No space left on device.*room there"):
        run(files["layers"], tmp_path / "out", trials=3)
    assert not (tmp_path / "out" / "model.json").exists()


def test_a_disk_that_is_full_at_the_end_leaves_the_library_of_before(files, tmp_path, monkeypatch) -> None:
    run(files["layers"], tmp_path, trials=3)
    before, link = (tmp_path / "model.so").read_bytes(), pipeline.link

    def full(made, library):
        if library.name == "alone.so":
            raise EnvironmentProblem("No space left on device")
        link(made, library)

    monkeypatch.setattr(pipeline, "link", full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        run(files["layers"], tmp_path, trials=6, resume=True)
    assert (tmp_path / "model.so").read_bytes() == before
    assert (tmp_path / RECORDS).read_bytes().count(b"\n") == 6
    monkeypatch.undo()
    _, found = run(files["layers"], tmp_path, trials=6, resume=True)
    assert found.library == tmp_path / "model.so"


def test_a_disk_that_is_full_for_the_chosen_ones_leaves_the_others(files, tmp_path, monkeypatch) -> None:
    link = pipeline.link

    def full(made, library):
        if library.name == "chosen.so":
            raise EnvironmentProblem("No space left on device")
        link(made, library)

    def second(programs, *_, **__):
        for one in programs:
            one.chosen = len(one.records) - 1
        return True

    monkeypatch.setattr(pipeline, "link", full)
    monkeypatch.setattr(builds, "choose", second)
    monkeypatch.setattr(in_model_selection, "WITHIN", math.inf)  # whichever made-up times are close
    text, _ = run(files["layers"], tmp_path, trials=12, finalists=4)
    assert "left out: the build failed: No space left on device" in " ".join(text.split())
    assert (tmp_path / "model.so").exists()


def test_ctrl_c_that_tvm_swallows_changes_no_setting(files, tmp_path, monkeypatch) -> None:
    """A callback of TVM's that is interrupted is an error like any other to what has called it."""
    off = prepare._off

    def swallowed(*given, **how):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt as error:
            raise RuntimeError("of TVM") from error
        return off(*given, **how)

    monkeypatch.setattr(prepare, "_off", swallowed)
    with pytest.raises(KeyboardInterrupt):
        run(files["net"], tmp_path, trials=3)
    assert not (tmp_path / "model.json").exists()


def test_records_are_not_left_for_a_passing_failure(files, tmp_path, monkeypatch) -> None:
    run(files["net"], tmp_path, trials=3)
    about = json.loads((tmp_path / "model.json").read_text())
    assert about["channels_last"] is True

    def fails(*_, **how):
        raise RuntimeError("there is no memory just now")

    monkeypatch.setattr(prepare, "_off", fails)
    with pytest.raises(WmschedError, match=r"prepared otherwise.*try again"):
        run(files["net"], tmp_path, trials=6, resume=True)
    assert json.loads((tmp_path / "model.json").read_text()) == about
    monkeypatch.undo()
    text, _ = run(files["net"], tmp_path, trials=6, resume=True, measurer=made_up())
    assert "3/3 trials" in text
