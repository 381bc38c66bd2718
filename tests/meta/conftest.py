"""These tests run with MetaSchedule's TVM; where it is absent they are skipped, with the reason."""

from __future__ import annotations

import importlib.util

import pytest

WHY_NOT = ""
if importlib.util.find_spec("tvm") is None:
    WHY_NOT = "apache-tvm is not installed: pip install -r requirements-meta.txt"
else:
    import tvm

    if not hasattr(tvm, "s_tir"):
        WHY_NOT = f"TVM {tvm.__version__} has no tvm.s_tir.meta_schedule: apache-tvm 0.27 is wanted"


class _Skipped(pytest.Module):
    def collect(self):
        pytest.skip(WHY_NOT, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return _Skipped.from_parent(parent, path=module_path) if WHY_NOT else None
