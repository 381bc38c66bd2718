"""`python -m benchmarks.operators.onnx_suite`: ONNX's backend test cases in worker processes, a line each.

A case that ends its process or hangs is a line as well. A run goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.operators.workers import ONE_THREAD, Worker, judge_all


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the cases that have no line yet; print the counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators.onnx_suite", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; those there are kept")
    parser.add_argument("--who", default="ours", help="ours, stock, onnxruntime: joined by commas")
    parser.add_argument("--shard", default="0/1", metavar="K/N", help="every N-th case from the K-th on")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names it is found in")
    options = parser.parse_args(argv)
    os.environ.update(ONE_THREAD)
    import xgboost  # noqa: F401  before TVM, as everywhere here

    from wmsched.toolchain.resolve import meta_schedule_tvm

    meta_schedule_tvm()
    import tvm.relax.frontend.onnx  # noqa: F401

    from benchmarks.operators.onnx_cases import about, cases, judge

    first, step = map(int, options.shard.split("/"))
    names = [name for name in list(cases())[first::step] if re.search(options.only, name)]
    wanted = [(name, who) for who in options.who.split(",") for name in names]
    judge_all(Worker(judge, about), wanted, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
