"""Wheels in parts: put together and installed without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from benchmarks.gpu import carried
from wmsched.base.errors import EnvironmentProblem

NAME = "wmtoy-1.0-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("wmtoy.py", "ANSWER = 42\n")
        file.writestr("wmtoy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wmtoy\nVersion: 1.0\n")
        file.writestr(
            "wmtoy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("wmtoy-1.0.dist-info/RECORD", "")
    return path


def test_parts_are_installed_as_the_wheel_that_they_were(tmp_path, wheel, monkeypatch) -> None:
    parts, site = tmp_path / "parts", tmp_path / "site"
    assert carried.main([str(parts), str(wheel), "--bytes", "200"]) == 0
    names = sorted(path.name for path in parts.iterdir())
    assert len(names) > 2 and names[0] == f"{NAME}.000"
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "before")
    assert carried.install(parts, site) == site
    assert sys.path[0] == str(site)
    told = subprocess.run(
        [sys.executable, "-c", "import wmtoy; print(wmtoy.ANSWER)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "42"  # in a child, by PYTHONPATH


def test_a_part_that_is_missing_is_named(tmp_path, wheel) -> None:
    carried.split(wheel, tmp_path, 200)
    wheel.unlink()
    (tmp_path / f"{NAME}.001").unlink()
    with pytest.raises(EnvironmentProblem, match=r"wmtoy.*one is missing"):
        carried.whole_wheels(tmp_path, tmp_path)


def test_a_folder_without_wheels_is_refused(tmp_path) -> None:
    with pytest.raises(EnvironmentProblem, match="has no wheel"):
        carried.whole_wheels(tmp_path, tmp_path)
