"""`python -m benchmarks.operators.onnx_suite`: ONNX's backend test cases in worker processes, a line each.

A case that ends its process or hangs is a line as well. A run goes on where an earlier one stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from benchmarks.operators.workers import suite


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the cases that have no line yet; print the counts."""
    return suite(argv, "operators.onnx_suite", __doc__, "ours, stock, onnxruntime", _opened)


def _opened() -> ModuleType:
    import tvm.relax.frontend.onnx  # noqa: F401

    from benchmarks.operators import onnx_cases

    return onnx_cases


if __name__ == "__main__":
    sys.exit(main())
