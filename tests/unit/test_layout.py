"""What keeps the processes apart: the guard of this folder, and TVM never at import time of the core."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest


def test_tvm_cannot_be_imported_here() -> None:
    assert importlib.util.find_spec("tvm") is not None  # looking is allowed
    with pytest.raises(ImportError, match="tests/backend"):
        import tvm  # noqa: F401


DOMAIN = ("wmsched.schedules.types", "wmsched.schedules.steps", "wmsched.learn.data.dataset", "wmsched.zoo")
HEAVY = ("torch", "tvm", "transformers", "xgboost")


@pytest.mark.parametrize("module", DOMAIN)
def test_domain_modules_import_no_framework(module: str) -> None:
    """Parsing and looking up are used where neither torch nor TVM is installed."""
    code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
