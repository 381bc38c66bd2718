"""`python -m benchmarks.operators.onnx_suite`: ONNX's backend test cases in worker processes, a line each.

A case that ends its process or hangs is a line as well. A run goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.operators.lines import read

SECONDS = 90.0  # after which a case has hung
ONE_THREAD = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def work(pipe: Any) -> None:
    """Judge the cases that come through a pipe, until it closes."""
    from benchmarks.operators.onnx_cases import judge

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # TVM's importer prints
    os.dup2(quiet, 2)
    while (wanted := pipe.recv()) is not None:
        pipe.send(judge(*wanted))


class Worker:
    """Process that judges one case after another, and is made anew when a case has ended it."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("fork")  # the cases and TVM are loaded once
        self.process: Any = None

    def judge(self, name: str, who: str) -> dict[str, Any]:
        """Return the line of a case."""
        if self.process is None:
            self.pipe, theirs = self.context.Pipe()
            self.process = self.context.Process(target=work, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        self.pipe.send((name, who))
        why = f"hangs: no answer after {SECONDS:g} s"
        if self.pipe.poll(SECONDS):
            try:
                return dict(self.pipe.recv())
            except EOFError:
                self.process.join()
                why = f"ends the process: code {self.process.exitcode}"
        self.process.kill()
        self.process.join()
        self.process = None
        from benchmarks.operators.onnx_cases import cases, model_of, operators_of, sort_of

        model = model_of(cases()[name])
        operators = operators_of(model.graph)
        line = {"kind": "onnx_case", "case": name, "who": who, "operator": operators[0]}
        return line | {"sort": sort_of(model, operators), "verdict": "crash", "reason": why}

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.pipe.send(None)
            self.process.join()


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

    from benchmarks.operators.onnx_cases import cases

    first, step = map(int, options.shard.split("/"))
    names = [name for name in list(cases())[first::step] if re.search(options.only, name)]
    before = {(line["case"], line["who"]) for line in read(options.out)}
    wanted = [(name, who) for who in options.who.split(",") for name in names]
    todo = [each for each in wanted if each not in before]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    worker, began = Worker(), time.monotonic()
    with options.out.open("a", encoding="utf-8") as file:
        for k, (name, who) in enumerate(todo):
            line = worker.judge(name, who)
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            if sys.stderr.isatty() or k % 200 == 199:
                seconds = time.monotonic() - began
                print(f"{k + 1} of {len(todo)} cases, {seconds:.0f} s", file=sys.stderr)
    worker.close()
    asked = set(wanted)
    lines = [line for line in read(options.out) if (line["case"], line["who"]) in asked]
    for who in options.who.split(","):
        counts = Counter(line["verdict"] for line in lines if line["who"] == who)
        print(f"{who}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
