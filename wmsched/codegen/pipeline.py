"""The passes between a schedule and LLVM, in order, for either TVM; they run besides TVM's own."""

from __future__ import annotations

import logging
from typing import Any

from wmsched.codegen.nodes import MODERN
from wmsched.codegen.prefetch import prefetched
from wmsched.codegen.row_vectors import in_rows
from wmsched.codegen.serial_loops import on_one_thread
from wmsched.codegen.vectorize import in_vectors

logger = logging.getLogger("wmsched")

MIN_PREFETCH_LLVM = 16  # first LLVM version that parses the code of `prefetch.CODE`


def run_passes(function: Any) -> Any:
    """Return a function of flat loop nests after all passes of STEPS.

    A pass that fails is skipped with a warning: the function stays correct without it.
    """
    for step, what in STEPS:
        try:
            function = step(function)
        except Exception:  # an unforeseen program or TVM must not end the build
            logger.warning("wmsched: a function is built without %s", what, exc_info=True)
    return function


def _prefetch(function: Any) -> Any:
    return prefetched(function) if _llvm() >= MIN_PREFETCH_LLVM else function


def _llvm() -> int:
    from tvm.target.codegen import llvm_version_major

    return llvm_version_major(allow_none=True) or 0


STEPS = [(in_rows, "vectors within rows"), (in_vectors, "loops in vectors"), (_prefetch, "prefetches")]
if MODERN:
    STEPS.append((on_one_thread, "small loops on one thread"))
