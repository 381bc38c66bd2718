"""What is done to each function between a schedule and LLVM, of either TVM, besides TVM's own lowering."""

from __future__ import annotations

import logging
from typing import Any

from wmsched.codegen.nodes import MODERN
from wmsched.codegen.prefetch import prefetched
from wmsched.codegen.serial_loops import on_one_thread
from wmsched.codegen.vectorize import in_vectors

logger = logging.getLogger("wmsched")

PREFETCH_LLVM = 16  # the first whose language has what `prefetches` says in it


def run_passes(function: Any) -> Any:
    """A function of flat loop nests with loops in vectors and what it reads next fetched ahead.

    In MetaSchedule's TVM small loops are on one thread, too. A function that a step fails at is built without
    it: it is the same function, and no build may end for it.
    """
    for step, what in STEPS:
        try:
            function = step(function)
        except Exception:  # of a program, or a TVM, that nobody has thought of
            logger.warning("wmsched: a function is built without %s", what, exc_info=True)
    return function


def _prefetched(function: Any) -> Any:
    return prefetched(function) if _llvm() >= PREFETCH_LLVM else function


def _llvm() -> int:
    from tvm.target.codegen import llvm_version_major

    return llvm_version_major(allow_none=True) or 0


STEPS = [(in_vectors, "loops in vectors"), (_prefetched, "prefetches")]
if MODERN:
    STEPS.append((on_one_thread, "small loops on one thread"))
