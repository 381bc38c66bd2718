"""Unit tests run without TVM: an import of it in their process fails, whatever is installed."""

from __future__ import annotations

import importlib.abc
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


class _NoTVM(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "tvm":
            raise ImportError("tests/unit run without TVM; a test that needs it belongs in tests/backend")
        return None


def pytest_configure(config: pytest.Config) -> None:
    paths = [Path(str(arg).split("::")[0]).resolve() for arg in config.args]
    if all(path.is_relative_to(HERE) for path in paths):  # not where the tests of a backend share the process
        sys.meta_path.insert(0, _NoTVM())
