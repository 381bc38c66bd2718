"""Worker process that judges cases one after another; a case that ends it, or hangs, is a line as well."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.operators.lines import Line, read

SECONDS = 90.0  # of a processor, after which a case has hung
MAX_WAIT = 20 * SECONDS  # of the clock: a case that waits for something uses no processor
ONE_THREAD = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _work(pipe: Any, judge: Callable[[str, str], Line]) -> None:
    """Judge the cases that come through a pipe, until it closes."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # TVM's importer prints
    os.dup2(quiet, 2)
    while (wanted := pipe.recv()) is not None:
        pipe.send(judge(*wanted))


class Worker:
    """Process that judges one case after another, and is made anew when a case has ended it.

    Parameters
    ----------
    judge : callable (case, who) -> dict
        Line of a case. It runs in a fork, so that cases and TVM are loaded once.
    lost : callable (case, who) -> dict
        Line, without verdict and reason, of a case that has ended its process.
    """

    def __init__(self, judge: Callable[[str, str], Line], lost: Callable[[str, str], Line]) -> None:
        self.functions, self.lost = judge, lost
        self.context = multiprocessing.get_context("fork")
        self.process: Any = None

    def judge(self, name: str, who: str) -> Line:
        """Return the line of a case."""
        if self.process is None:
            self.pipe, theirs = self.context.Pipe()
            self.process = self.context.Process(target=_work, args=(theirs, self.functions), daemon=True)
            self.process.start()
            theirs.close()
        self.pipe.send((name, who))
        why = f"hangs: no answer after {SECONDS:g} s"
        if self._answers():
            try:
                return dict(self.pipe.recv())
            except EOFError:
                self.process.join()
                why = f"ends the process: code {self.process.exitcode}"
        self.process.kill()
        self.process.join()
        self.process = None
        return self.lost(name, who) | {"verdict": "crash", "reason": why}

    def _answers(self) -> bool:
        """Wait for an answer or the process's end; time that other programs take does not count."""
        began, used = time.monotonic(), cpu_seconds(self.process.pid)
        while not self.pipe.poll(1.0):
            spent = cpu_seconds(self.process.pid) - used
            if spent > SECONDS or time.monotonic() - began > MAX_WAIT:
                return False
        return True

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.pipe.send(None)
            self.process.join()


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used; 0 of one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judge_all(
    worker: Worker, wanted: Sequence[tuple[str, str]], out: Path, kept: Callable[[str], bool] | None = None
) -> None:
    """Append a line for each case and runtime that has none in the file yet; print the counts.

    Parameters
    ----------
    worker : Worker
    wanted : sequence of (case, who)
    out : Path
    kept : callable (verdict) -> bool, optional
        Whether a case that has this verdict in the file is left as it is; all are by default. The last line
        of a case counts.
    """
    before = {(line["case"], line["who"]): line["verdict"] for line in read(out)}
    todo = [each for each in wanted if each not in before or not (kept is None or kept(before[each]))]
    out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with out.open("a", encoding="utf-8") as file:
        for k, (name, who) in enumerate(todo):
            file.write(json.dumps(worker.judge(name, who), ensure_ascii=False) + "\n")
            file.flush()
            if sys.stderr.isatty() or k % 200 == 199:
                seconds = time.monotonic() - began
                print(f"{k + 1} of {len(todo)} cases, {seconds:.0f} s", file=sys.stderr)
    worker.close()
    asked = set(wanted)
    last = {(line["case"], line["who"]): line["verdict"] for line in read(out)}
    for who in dict.fromkeys(who for _, who in wanted):
        counts = Counter(verdict for each, verdict in last.items() if each in asked and each[1] == who)
        print(f"{who}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


def suite(argv: Sequence[str] | None, name: str, doc: str | None, who: str, opened: Callable[[], Any]) -> int:
    """Judge the cases of a suite that have no line yet, as its command says; print the counts.

    Parameters
    ----------
    argv : sequence of str, optional
    name, doc : str
        Of the suite's module.
    who : str
        Whose results can be judged.
    opened : callable ()
        Imports the frontend, after TVM, and returns a module with `about`, `cases` and `judge`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; those there are kept")
    parser.add_argument("--who", default="ours", help=f"{who}: joined by commas")
    parser.add_argument("--shard", default="0/1", metavar="K/N", help="every N-th case from the K-th on")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names it is found in")
    parser.add_argument("--again", default="", metavar="REGEX", help="verdicts whose cases are judged anew")
    options = parser.parse_args(argv)
    os.environ.update(ONE_THREAD)
    import xgboost  # noqa: F401  before TVM, as everywhere here

    from wmsched.toolchain.resolve import meta_schedule_tvm

    meta_schedule_tvm()
    found = opened()
    first, step = map(int, options.shard.split("/"))
    names = [name for name in list(found.cases())[first::step] if re.search(options.only, name)]
    wanted = [(name, who) for who in options.who.split(",") for name in names]
    again = options.again

    def is_kept(verdict: str) -> bool:
        return not (again and re.search(again, verdict))

    judge_all(Worker(found.judge, found.about), wanted, options.out, is_kept)
    return 0
