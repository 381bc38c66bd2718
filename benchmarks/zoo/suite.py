"""`python -m benchmarks.zoo.suite`: architectures of the libraries in worker processes, a line each.

An architecture that ends its process or hangs is a line as well. A run goes on where an earlier one stopped.
timm and torchvision are extras: without them transformers' architectures are judged alone. Where they are
not beside torch, WMSCHED_ZOO names the folder of `pip install --no-deps --target FOLDER timm torchvision`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from benchmarks.operators.workers import suite


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the architectures that have no line yet; print the counts."""
    return suite(argv, "zoo.suite", __doc__, "ours, stock", _opened)


def _opened() -> ModuleType:
    import torch
    import tvm.relax.frontend.torch  # noqa: F401

    from benchmarks.zoo import timm_models

    timm_models.is_there()  # transformers looks for timm once, when it is imported
    import transformers

    from benchmarks.zoo import cases

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # a fork has no threads of its parent's pool
    return cases


if __name__ == "__main__":
    sys.exit(main())
