"""What is done to each function between a schedule and LLVM, of either TVM, besides TVM's own lowering."""

from __future__ import annotations

from typing import Any

from wmsched.backends.prefetches import prefetched
from wmsched.backends.vector_loops import in_vectors

PREFETCH_LLVM = 16  # the first whose language has what `prefetches` says in it


def lowered(function: Any) -> Any:
    """A function of flat loop nests with loops in vectors and what it reads next fetched ahead."""
    from tvm.target.codegen import llvm_version_major

    function = in_vectors(function)
    return prefetched(function) if (llvm_version_major(allow_none=True) or 0) >= PREFETCH_LLVM else function
