"""`python -m benchmarks.operators.torch_suite`: PyTorch's operator samples in worker processes, a line each.

A case that ends its process or hangs is a line as well. A run goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.operators.workers import ONE_THREAD, Worker, judge_all
from wmsched.base.errors import EnvironmentProblem


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the cases that have no line yet; print the counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators.torch_suite", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; those there are kept")
    parser.add_argument("--who", default="ours", help="ours, stock: joined by commas")
    parser.add_argument("--shard", default="0/1", metavar="K/N", help="every N-th case from the K-th on")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names it is found in")
    options = parser.parse_args(argv)
    if importlib.util.find_spec("expecttest") is None:
        raise EnvironmentProblem("PyTorch's samples need the package expecttest: pip install expecttest")
    os.environ.update(ONE_THREAD)
    import xgboost  # noqa: F401  before TVM, as everywhere here

    from wmsched.toolchain.resolve import meta_schedule_tvm

    meta_schedule_tvm()
    import torch
    import tvm.relax.frontend.torch  # noqa: F401

    from benchmarks.operators.torch_cases import about, cases, judge

    torch.set_num_threads(1)  # a fork has no threads of its parent's pool
    first, step = map(int, options.shard.split("/"))
    names = [name for name in list(cases())[first::step] if re.search(options.only, name)]
    wanted = [(name, who) for who in options.who.split(",") for name in names]
    judge_all(Worker(judge, about), wanted, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
