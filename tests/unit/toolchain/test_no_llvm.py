"""A TVM without an LLVM back end has nothing to mend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wmsched.toolchain import alias_tags


def no_function(name: str, allow_missing: bool = False) -> Any:
    assert allow_missing, f"asks for {name} as if it had to exist"
    return None


def test_tvm_without_llvm_is_left_alone(monkeypatch):
    monkeypatch.delenv(alias_tags.PATCH_VARIABLE, raising=False)
    tvm: Any = SimpleNamespace(get_global_func=no_function, __file__="tvm/__init__.py")
    assert not alias_tags.ensure_right_code(tvm, "llvm")
    assert alias_tags.PATCH_VARIABLE not in alias_tags.os.environ
