"""Processes that start within `no_torch` find no PyTorch; the environment is afterwards what it was."""

import os
import subprocess
import sys

import pytest

from wmsched.toolchain.no_torch import SITE, no_torch
from wmsched.toolchain.python_path import VARIABLE

TRY = """
try:
    import torch
except ImportError as error:
    print("none:", error)
else:
    print("there")
"""


def tried() -> str:
    return subprocess.run([sys.executable, "-c", TRY], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("before", [None, "/somewhere"])
def test_it_cannot_be_imported(monkeypatch, before) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before:
        monkeypatch.setenv(VARIABLE, before)
    with no_torch():
        assert os.environ[VARIABLE].split(os.pathsep) == [str(SITE), *([before] if before else [])]
        assert tried().startswith("none: torch is not imported")
    assert os.environ.get(VARIABLE) == before


def test_it_can_where_that_is_not_wanted(tmp_path, monkeypatch) -> None:
    (tmp_path / "torch.py").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with no_torch(False):
        assert tried() == "there\n"
    assert os.environ[VARIABLE] == str(tmp_path)


def test_an_error_leaves_the_environment_as_it_was(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ZeroDivisionError), no_torch():
        raise ZeroDivisionError
    assert VARIABLE not in os.environ
