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
import functools
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROGRAMS, SECONDS, RUNS, AGAIN = "programs.jsonl", "seconds.jsonl", "runs.jsonl", "again.jsonl"
DEVICE = "device.json"
LEAST_MS = 10.0  # of a timing: so many calls in a row
REPEATS = 3  # timings of a program; the median counts
PLACES = 2000  # of a program's output that are written down
SLOW_SECONDS = 0.02  # of one call: a program as slow as that is timed once
HANG_SECONDS = 25.0  # without a word from the worker, the first one of a process's start included
COMPILE_SECONDS = 90.0  # a compiler without a word
COMPILE = "compile"  # in place of a device's kind: a worker that compiles
LOADER = "ffi.Module.load_from_bytes.cuda"


def rows(path: Path) -> list[dict]:
    """The complete lines of a file; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def mend(path: Path) -> None:
    """Cut off a last line that a kill left unfinished: the next one would be written behind it."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


def drawn(shapes: Sequence, dtypes: Sequence | None = None) -> tuple[list, Any]:
    """A program's inputs, without its output, which comes last, and the places of that to look at."""
    import math

    import numpy as np

    draw = np.random.default_rng(7)
    inputs = [draw.standard_normal(shape, dtype="float32") for shape in shapes[:-1]]
    inputs = [values.astype(dtype) for values, dtype in zip(inputs, dtypes or ["float32"] * len(inputs))]
    return inputs, np.random.default_rng(11).integers(0, math.prod(shapes[-1]), PLACES)


# ------------------------------------------------------------------ the worker


class Timer:
    """Times libraries on the first device of a kind."""

    def __init__(self, kind: str) -> None:
        import numpy as np
        import tvm
        import tvm_ffi
        from tvm import libinfo, runtime
        from tvm_ffi.libinfo import load_lib_ctypes

        if kind != "cpu" and not tvm.runtime.device(kind, 0).exist:
            # without the compiler's library TVM loads no device's (0.27, `_autoload_backends`)
            load_lib_ctypes(
                "tvm", f"tvm_runtime_{kind}", "RTLD_LOCAL", extra_lib_paths=libinfo.package_lib_paths()
            )
        self.np, self.runtime = np, runtime
        self.kind = kind
        self.device = runtime.device(kind, 0)
        self.machine_code = b""  # of the library that is being loaded, where it came as source
        if kind == "cuda":
            loader = tvm.get_global_func(LOADER)
            tvm_ffi.register_global_func(
                LOADER, lambda data: loader(compiled(bytes(data), self.machine_code)), override=True
            )
        self.buffers: dict[str, list] = {}
        self.modules: dict[str, Any] = {}

    def arguments(self, described: list) -> list:
        """Buffers of these shapes; the last described ones are kept."""
        name = json.dumps(described)
        if name not in self.buffers:
            self.buffers.clear()
            inputs, _ = drawn([shape for *_, shape in described], [dtype for _, dtype, _ in described])
            out = self.np.zeros(described[-1][2], described[-1][1])
            self.buffers[name] = [
                self.runtime.tensor(values, device=self.device) for values in [*inputs, out]
            ]
        return self.buffers[name]

    def load(self, path: str) -> Any:
        """A library; it stays loaded."""
        if path not in self.modules:
            code = Path(path).with_suffix(".cubin")
            self.machine_code = code.read_bytes() if code.exists() else b""
            self.modules[path] = self.runtime.load_module(path)
        return self.modules[path]

    def forget(self) -> None:
        """Unload all libraries."""
        self.modules.clear()

    def seconds(self, path: str, described: list, least_ms: float, repeats: int) -> list[float]:
        """Timings of a library's `main`, each of calls in a row for so long, after a call that warms up."""
        module, given = self.load(path), self.arguments(described)
        module["main"](*given)
        self.device.sync()
        began = time.perf_counter()
        module["main"](*given)
        self.device.sync()
        if time.perf_counter() - began > SLOW_SECONDS:
            least_ms, repeats = 0.0, 1
        evaluate = module.time_evaluator(
            "main", self.device, number=1, repeat=repeats, min_repeat_ms=int(least_ms)
        )
        return [float(x) for x in evaluate(*given).results]

    def about(self) -> dict:
        """What a result line says of the device."""
        import platform

        import tvm

        told = {"kind": self.kind, "tvm": tvm.__version__, "python": platform.python_version()}
        if self.kind != "cpu":
            told |= {"name": str(self.device.device_name), "capability": str(self.device.compute_version)}
        return told

    def outputs(self, path: str, described: list) -> list[float]:
        """Of the last argument, what the program writes there from drawn inputs, at so many places."""
        module, given = self.load(path), self.arguments(described)
        out = given[-1]
        out.copyfrom(self.np.full(described[-1][2], self.np.nan, described[-1][1]))
        module["main"](*given)
        self.device.sync()
        values = out.numpy().ravel()
        _, places = drawn([shape for *_, shape in described])
        return [float(x) for x in values[places]] + [float(self.np.isnan(values).sum())]


def compiled(data: bytes, machine_code: bytes) -> bytes:
    """The bytes of a module of kernels with machine code in the place of their source.

    TVM writes the format's name, a table of the kernels, and the source or code, texts after their lengths.
    """
    head = struct.pack("<Q", 4) + b"cuda"
    if not data.startswith(head):
        return data
    place = next(
        i for i in range(len(data) - 8, -1, -1) if struct.unpack_from("<Q", data, i)[0] == len(data) - i - 8
    )
    table = data[len(head) : place]
    return b"".join(
        [struct.pack("<Q", 5), b"cubin", table, struct.pack("<Q", len(machine_code)), machine_code]
    )


def compile_kernels() -> None:
    """Compile sources to machine code of this machine's GPU, as asked for by lines of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import cuda_headers  # beside this file
    from tvm.support import nvcc

    answers.write("ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        source = Path(request["source"])
        code = source.read_text()
        options = {"target_format": "cubin", "arch": request["arch"], "compiler": "nvrtc"}
        try:
            made = cuda_headers.compiled(code, functools.partial(nvcc.compile_cuda, **options))
            partial = source.with_suffix(f".{os.getpid()}")
            partial.write_bytes(bytes(made))
            partial.replace(source.with_suffix(".cubin"))
            answers.write(json.dumps({"bytes": len(made)}) + "\n")
        except Exception as error:
            answers.write(json.dumps({"failed": str(error)[-400:]}) + "\n")


def work(kind: str) -> None:
    """Answer requests, a line of JSON each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints
    timer = Timer(kind)
    answers.write("ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request.get("about"):
                answers.write(json.dumps(timer.about()) + "\n")
                continue
            path, described = request["path"], request["arguments"]
            if request.get("outputs"):
                answer = {"outputs": timer.outputs(path, described)}
            else:
                answer = {"seconds": timer.seconds(path, described, request["ms"], request["repeats"])}
            if not request.get("keep"):
                timer.forget()
        except Exception as error:  # whatever it was: after some faults nothing more runs in this process
            answers.write(json.dumps({"error": str(error)[-400:]}) + "\n")
            os._exit(1)
        answers.write(json.dumps(answer) + "\n")


# ------------------------------------------------------------------ who watches it


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
        answer = json.loads(line)
        if "error" in answer:  # it ends by itself; a request that it does not read any more would be lost
            self.stop()
        return answer

    def _running(self) -> Any:
        """The process; OSError if it does not start."""
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, __file__, "--work", self.kind]
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


def measure(folder: Path, kind: str, until: float) -> tuple[int, int]:
    """Time what `seconds.jsonl` does not have; how many were timed, and how many of these failed."""
    mend(folder / SECONDS)
    known = {row["key"] for row in rows(folder / SECONDS)}
    todo = [row for row in rows(folder / PROGRAMS) if row["key"] not in known]
    order = {name: i for i, name in enumerate(dict.fromkeys(json.dumps(row["arguments"]) for row in todo))}
    todo.sort(key=lambda row: order[json.dumps(row["arguments"])])  # of the same buffers together
    about = json.loads((folder / DEVICE).read_text())
    arch = "sm_" + str(about.get("capability", "")).replace(".", "")
    count = max(1, len(os.sched_getaffinity(0)) - 2)  # one for the timing, and one for this process
    compilers = Compilers([row["key"] for row in todo], folder / "programs", arch, count)
    worker, timed, failed = Worker(kind), 0, 0
    with open(folder / SECONDS, "a", buffering=1) as stream:
        for row in todo:
            if time.monotonic() > until:
                print(f"the time is up; {len(todo) - timed} programs are left")
                break
            path = str(folder / "programs" / f"{row['key']}.so")
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
    worker.stop()
    return timed, failed


def again(folder: Path, kind: str, rounds: int, until: float) -> int:
    """Time the best program of each run again, those of a task in turns; how many tasks were.

    Their outputs are written down too: programs of one task compute the same.
    """
    known = {row["key"]: row["seconds"] for row in rows(folder / SECONDS) if row.get("seconds")}
    described = {row["key"]: row["arguments"] for row in rows(folder / PROGRAMS)}
    tasks: dict[str, set[str]] = {}
    for run in rows(folder / RUNS):
        timed = [key for key in run["keys"] if key in known]
        if timed:
            best = min(timed, key=lambda key: sorted(known[key])[len(known[key]) // 2])
            tasks.setdefault(run["task"], set()).add(best)
    mend(folder / AGAIN)
    done = {row["task"] for row in rows(folder / AGAIN)}
    worker, count = Worker(kind), 0
    for task, keys in tasks.items():
        if task in done or time.monotonic() > until:
            continue
        found: dict[str, dict] = {key: {"seconds": [], "outputs": []} for key in sorted(keys)}
        for turn in range(rounds + 1):
            for key, entry in found.items():
                path = str(folder / "programs" / f"{key}.so")
                request = {"path": path, "arguments": described[key], "keep": True, "ms": 40.0, "repeats": 1}
                answer = worker.ask(request | ({"outputs": True} if turn == 0 else {}))
                entry["outputs"] += answer.get("outputs", [])
                entry["seconds"] += answer.get("seconds", [])
        with open(folder / AGAIN, "a") as stream:
            stream.write(json.dumps({"task": task, "programs": found}) + "\n")
        count += 1
        worker.stop()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parcel", type=Path, nargs="?")
    parser.add_argument("--kind", default="cuda")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    parser.add_argument("--again", type=int, default=0, help="rounds of the second measurement")
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        compile_kernels() if options.work == COMPILE else work(options.work)
        return
    began = time.monotonic()
    worker = Worker(options.kind)
    about = worker.ask({"about": True})
    worker.stop()
    if "error" in about:
        sys.exit(f"nothing can be timed on {options.kind} here: {about['error']}")
    (options.parcel / DEVICE).write_text(json.dumps(about))
    timed, failed = measure(options.parcel, options.kind, began + options.limit)
    print(f"{timed} programs timed, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    if options.again:
        count = again(options.parcel, options.kind, options.again, began + options.limit)
        print(f"{count} tasks timed again, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
