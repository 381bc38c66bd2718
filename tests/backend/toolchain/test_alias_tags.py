"""Programs that AutoScheduler's TVM compiles are right, in this process and in those it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from wmsched.toolchain import alias_tags
from wmsched.toolchain.resolve import autoscheduler_tvm, host_target

CHILD = """
import sys
sys.path.insert(0, {root!r})
import xgboost, tvm, tvm.te
from wmsched.toolchain import alias_tags
print(alias_tags.computes_right(tvm, {target!r}))
"""


def ask_child(env: dict[str, str]) -> str:
    code = CHILD.format(root=str(ROOT), target=host_target())
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip().splitlines()[-1]


def wheel() -> Path:
    root = Path(str(autoscheduler_tvm().__file__)).resolve().parents[1]
    if not (root / "sitecustomize.py").is_file():
        pytest.skip("the TVM in use is not the wheel that `wmsched setup-tvm` installs")
    return root


def test_this_process_compiles_right_programs():
    tvm = autoscheduler_tvm()
    assert alias_tags.computes_right(tvm, host_target())
    assert not alias_tags.ensure_right_code(tvm, host_target())  # nothing left to mend


def test_asking_where_tvm_is_does_not_use_up_the_mending():
    env = {**os.environ, "PYTHONPATH": str(wheel())}
    env.pop(alias_tags.PATCH_VARIABLE, None)
    code = f"""
import importlib.util, os, sys
importlib.util.find_spec("tvm")
sys.path.insert(0, {str(ROOT)!r})
from wmsched.toolchain.resolve import autoscheduler_tvm
autoscheduler_tvm()
print(os.environ.get({alias_tags.PATCH_VARIABLE!r}))
"""
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "None"  # there was nothing to mend


def test_the_installed_wheel_is_mended_without_wmsched():
    assert ask_child({**os.environ, "PYTHONPATH": str(wheel())}) == "True"


def test_the_wheel_as_published_is_wrong_and_is_mended_in_a_process_and_its_children(tmp_path):
    bare = tmp_path / "bare"
    (bare / "tvm").mkdir(parents=True)
    for entry in (wheel() / "tvm").iterdir():
        if entry.name == "__init__.py":  # which says whose folder it is: a user's
            (bare / "tvm" / entry.name).write_text(entry.read_text())
        else:
            (bare / "tvm" / entry.name).symlink_to(entry)
    (bare / "sitecustomize.py").write_text("import numpy as np\nnp.float_ = np.float64\n")
    env = {**os.environ, "PYTHONPATH": str(bare)}
    env.pop(alias_tags.PATCH_VARIABLE, None)
    # The guard of this test: should a later wheel be right, the mending can go.
    assert ask_child(env).startswith("False")

    code = f"""
import subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from wmsched.toolchain.resolve import autoscheduler_tvm
autoscheduler_tvm()
print(subprocess.run([sys.executable, "-c", {CHILD.format(root=str(ROOT), target=host_target())!r}],
                     capture_output=True, text=True).stdout.strip().splitlines()[-1])
"""
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout.strip().splitlines()[-1:] == ["True"], ran.stderr
    assert "compiles wrong programs" in ran.stderr
