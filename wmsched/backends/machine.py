"""Whether this machine can measure programs for a target in AutoScheduler at all."""

from __future__ import annotations

from typing import Any

from wmsched.errors import EnvironmentProblem, UnknownName
from wmsched.resolve import autoscheduler_tvm, check_linker, host_target, is_cpu


def measurable_target(text: str | None) -> Any:
    """The `tvm.target.Target` of a text, by default this machine's processor.

    Raises
    ------
    UnknownName
        TVM does not know it.
    EnvironmentProblem
        There is no such device here, or no compiler to link programs with.
    """
    tvm = autoscheduler_tvm()
    from tvm.contrib import cc

    check_linker(cc)
    try:
        target = tvm.target.Target(text or host_target())
    except Exception as error:  # JSON's and TVM's have no common base
        raise UnknownName(
            f"--target {text!r}: TVM {tvm.__version__} does not know it ({str(error).strip()[-200:]}); it "
            "takes such as 'llvm -mcpu=skylake-avx512' or 'cuda -arch=sm_89'"
        ) from error
    kind = str(target.kind.name)
    try:
        there = is_cpu(target) or tvm.device(kind, 0).exist
    except Exception:  # a kind without devices
        there = False
    if not there:
        raise EnvironmentProblem(
            f"--target {text!r}: this machine, or this TVM, has no {kind} device to measure on"
        )
    return target
