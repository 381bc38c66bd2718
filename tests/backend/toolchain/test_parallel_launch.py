"""The parallel launch in AutoScheduler's TVM."""

import pytest
import tvm
from launch_checks import *  # noqa: F403
from launch_checks import COUNT


@pytest.fixture
def program(target):
    def write(path):
        a = tvm.te.placeholder((COUNT,), name="a")
        b = tvm.te.compute((COUNT,), lambda i: a[i] + 1.0, name="b")
        schedule = tvm.te.create_schedule(b.op)
        schedule[b].parallel(b.op.axis[0])
        tvm.build(schedule, [a, b], target).export_library(str(path))
        return tvm.runtime.load_module, tvm.nd.array

    return write
