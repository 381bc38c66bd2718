"""Modules of AutoScheduler's, imported first in a process whose path has MetaSchedule's TVM before it."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["codegen", "task_scheduler"])
def test_autoschedulers_modules_find_their_tvm(module):
    code = f"import wmsched.ansor.{module}\nfrom tvm import auto_scheduler"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
