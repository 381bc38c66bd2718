"""Times the programs of a parcel (`parcel`) on this machine's GPU, with TVM's runtime and numpy alone.

    python parcel_time.py PARCEL [--limit SECONDS] [--again ROUNDS]

Kernels that came as source (`KEY.cu`) are compiled with NVRTC, several at a time, while others are timed.
Programs of the same arguments share one set of buffers. A worker process does the timing: after a fault of a
kernel every further call of that process fails, so the program is noted as failed and a new worker goes on;
one that hangs ends with its worker. `seconds.jsonl` is appended to line by line, and what it has is not timed
again; `device.json` says what it was timed on.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROGRAMS, SECONDS, RUNS, AGAIN = "programs.jsonl", "seconds.jsonl", "runs.jsonl", "again.jsonl"
DEVICE, FOLDER = "device.json", "programs"
LEAST_MS = 10.0  # of a timing: so many calls in a row
REPEATS = 3  # timings of a program; the median counts
HANG_SECONDS = 25.0  # without a word from the worker, the first one of a process's start included
COMPILE_SECONDS = 90.0  # a compiler without a word
COMPILE = "compile"  # in place of a device's kind: a worker that compiles
WORKER = Path(__file__).with_name("parcel_worker.py")


def rows(path: Path) -> list[dict]:
    """The complete lines of a file; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def seconds(folder: Path) -> dict[str, list[float]]:
    """What was timed of a parcel's programs, by key; [] for one that failed."""
    return {row["key"]: row.get("seconds", []) for row in rows(folder / SECONDS)}


def mend(path: Path) -> None:
    """Cut off a last line that a kill left unfinished: the next one would be written behind it."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


class Worker:
    """A worker process, started when it is first needed and again after it died."""

    def __init__(self, kind: str, patience: float = HANG_SECONDS) -> None:
        self.kind, self.patience = kind, patience
        self.process: subprocess.Popen | None = None

    def ask(self, request: dict) -> dict:
        """The answer to a request, or {"error"} where there is none."""
        try:
            process = self._running()
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._line(process)
        except OSError as error:
            self.stop()
            return {"error": f"the worker died: {error}"}
        if not line:
            self.stop()
            return {"error": f"no answer in {self.patience} s, or the worker died"}
        try:
            answer = json.loads(line)
        except ValueError:  # it died amid its answer
            self.stop()
            return {"error": f"the worker died amid its answer: {line[-200:]!r}"}
        if "error" in answer:  # it ends by itself; a request that it does not read any more would be lost
            self.stop()
        return answer

    def _running(self) -> Any:
        """The process; OSError if it does not start."""
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, str(WORKER), self.kind]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
            if self._line(self.process) != "ready\n":
                raise OSError("it did not start")
        return self.process

    def _line(self, process: Any) -> str:
        ready, _, _ = select.select([process.stdout], [], [], self.patience)
        return process.stdout.readline() if ready else ""

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


class Compilers:
    """Processes that compile the sources of programs, in the order of these."""

    def __init__(self, keys: Sequence[str], folder: Path, arch: str, count: int) -> None:
        self.arch = arch
        self.local = threading.local()
        self.workers: list[Worker] = []
        self.pool = ThreadPoolExecutor(count)
        sources = {key: folder / f"{key}.cu" for key in keys}
        self.made = {
            key: self.pool.submit(self._compile, source) for key, source in sources.items() if source.exists()
        }

    def _compile(self, source: Path) -> dict:
        if source.with_suffix(".cubin").exists():
            return {}
        if not hasattr(self.local, "worker"):
            self.local.worker = Worker(COMPILE, COMPILE_SECONDS)
            self.workers.append(self.local.worker)
        answer: dict = self.local.worker.ask({"source": str(source), "arch": self.arch})
        return answer

    def failure(self, key: str) -> str:
        """Why a program has no machine code; "" where it has, or came with it. Waits for it."""
        answer = self.made[key].result() if key in self.made else {}
        return str(answer.get("failed") or answer.get("error") or "")

    def stop(self) -> None:
        """End the processes; what they have not compiled is left."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.stop()


def measure(folder: Path, worker: Worker, until: float) -> tuple[int, int]:
    """Time what `seconds.jsonl` does not have; how many were timed, and how many of these failed."""
    mend(folder / SECONDS)
    known = seconds(folder)
    todo = [row for row in rows(folder / PROGRAMS) if row["key"] not in known]
    order = {name: i for i, name in enumerate(dict.fromkeys(json.dumps(row["arguments"]) for row in todo))}
    todo.sort(key=lambda row: order[json.dumps(row["arguments"])])  # of the same buffers together
    about = json.loads((folder / DEVICE).read_text())
    arch = "sm_" + str(about.get("capability", "")).replace(".", "")
    count = max(1, len(os.sched_getaffinity(0)) - 2)  # one for the timing, and one for this process
    compilers = Compilers([row["key"] for row in todo], folder / FOLDER, arch, count)
    timed = failed = 0
    with open(folder / SECONDS, "a", buffering=1) as stream:
        for row in todo:
            if time.monotonic() > until:
                print(f"the time is up; {len(todo) - timed} programs are left")
                break
            path = str(folder / FOLDER / f"{row['key']}.so")
            request = {"path": path, "arguments": row["arguments"], "ms": LEAST_MS, "repeats": REPEATS}
            why = compilers.failure(row["key"])
            answer = {"error": why} if why else worker.ask(request)
            stream.write(json.dumps({"key": row["key"], **answer}) + "\n")
            timed += 1
            failed += "error" in answer
            if "error" in answer and failed <= 5:
                print(row["key"], answer["error"][-300:], flush=True)
            if timed % 250 == 0:
                print(f"{timed} of {len(todo)}, {failed} failed", flush=True)
    compilers.stop()
    return timed, failed


def again(folder: Path, worker: Worker, rounds: int, until: float) -> int:
    """Time the best program of each run again, those of a task in turns; how many tasks were.

    Their outputs are written down too: programs of one task compute the same.
    """
    known = {key: statistics.median(found) for key, found in seconds(folder).items() if found}
    described = {row["key"]: row["arguments"] for row in rows(folder / PROGRAMS)}
    tasks: dict[str, set[str]] = {}
    for run in rows(folder / RUNS):
        timed = [key for key in run["keys"] if key in known]
        if timed:
            tasks.setdefault(run["task"], set()).add(min(timed, key=known.__getitem__))
    mend(folder / AGAIN)
    done = {row["task"] for row in rows(folder / AGAIN)}
    count = 0
    for task, keys in tasks.items():
        if task in done or time.monotonic() > until:
            continue
        found: dict[str, dict] = {key: {"seconds": [], "outputs": []} for key in sorted(keys)}
        for turn in range(rounds + 1):
            for key, entry in found.items():
                path = str(folder / FOLDER / f"{key}.so")
                request = {"path": path, "arguments": described[key], "keep": True, "ms": 40.0, "repeats": 1}
                answer = worker.ask(request | ({"outputs": True} if turn == 0 else {}))
                entry["outputs"] += answer.get("outputs", [])
                entry["seconds"] += answer.get("seconds", [])
        with open(folder / AGAIN, "a") as stream:
            stream.write(json.dumps({"task": task, "programs": found}) + "\n")
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parcel", type=Path)
    parser.add_argument("--kind", default="cuda")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    parser.add_argument("--again", type=int, default=0, help="rounds of the second measurement")
    options = parser.parse_args()
    began = time.monotonic()
    worker = Worker(options.kind)
    about = worker.ask({"about": True})
    if "error" in about:
        sys.exit(f"nothing can be timed on {options.kind} here: {about['error']}")
    (options.parcel / DEVICE).write_text(json.dumps(about))
    timed, failed = measure(options.parcel, worker, began + options.limit)
    print(f"{timed} programs timed, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    if options.again:
        count = again(options.parcel, worker, options.again, began + options.limit)
        print(f"{count} tasks timed again, {time.monotonic() - began:.0f} s", flush=True)
    worker.stop()


if __name__ == "__main__":
    main()
