"""`python -m benchmarks.operators.torch_suite`: PyTorch's operator samples in worker processes, a line each.

A case that ends its process or hangs is a line as well. A run goes on where an earlier one stopped.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from benchmarks.operators.workers import suite
from wmsched.base.errors import EnvironmentProblem


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the cases that have no line yet; print the counts."""
    return suite(argv, "operators.torch_suite", __doc__, "ours, stock", _opened)


def _opened() -> ModuleType:
    if importlib.util.find_spec("expecttest") is None:
        raise EnvironmentProblem("PyTorch's samples need the package expecttest: pip install expecttest")
    import torch
    import tvm.relax.frontend.torch  # noqa: F401

    from benchmarks.operators import torch_cases

    torch.set_num_threads(1)  # a fork has no threads of its parent's pool
    return torch_cases


if __name__ == "__main__":
    sys.exit(main())
