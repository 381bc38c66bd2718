"""Unit tests run without TVM: an import of it in their process fails, whatever is installed."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


class _NoTVM(MetaPathFinder, Loader):
    """Found first and refuses to load. Merely looking for tvm is allowed: torch does, when it is imported."""

    def find_spec(self, fullname, path=None, target=None):
        return ModuleSpec(fullname, self) if fullname == "tvm" else None

    def create_module(self, spec):
        raise ImportError("tests/unit run without TVM; a test that needs it belongs in tests/backend")

    def exec_module(self, module):
        """Never reached; importlib asks for it."""


def pytest_configure(config: pytest.Config) -> None:
    paths = [Path(str(arg).split("::")[0]).resolve() for arg in config.args]
    if all(path.is_relative_to(HERE) for path in paths):  # not where the tests of a backend share the process
        sys.meta_path.insert(0, _NoTVM())
