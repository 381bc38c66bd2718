"""What `parcel_time` has its processes do: time a parcel's libraries, or compile their kernels.

    python parcel_worker.py DEVICE          # or "compile"

Requests come as lines of JSON on standard input; the first answer is "ready", the others are JSON.
"""

from __future__ import annotations

import functools
import json
import math
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

COMPILE = "compile"  # in place of a device's kind
ANSOR = "ansor"  # a processor, with AutoScheduler's TVM
LOADER = "ffi.Module.load_from_bytes.cuda"
PLACES = 2000  # of a program's output that are written down
SLOW_SECONDS = 0.02  # of one call: a program as slow as that is timed once


def drawn(shapes: Sequence, dtypes: Sequence | None = None) -> list:
    """A program's inputs, the same wherever they are drawn; its output, which comes last, is none."""
    import numpy as np

    draw = np.random.default_rng(7)
    inputs = [draw.standard_normal(shape, dtype="float32") for shape in shapes[:-1]]
    return [values.astype(dtype) for values, dtype in zip(inputs, dtypes or ["float32"] * len(inputs))]


def places(shape: Sequence) -> Any:
    """Where an output of this shape, laid out flat, is looked at."""
    import numpy as np

    return np.random.default_rng(11).integers(0, math.prod(shape), PLACES)


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
            inputs = drawn([shape for *_, shape in described], [dtype for _, dtype, _ in described])
            out = self.np.zeros(described[-1][2], described[-1][1])
            self.buffers[name] = [self.tensor(values) for values in [*inputs, out]]
        return self.buffers[name]

    def tensor(self, values: Any) -> Any:
        """An array on the device."""
        return self.runtime.tensor(values, device=self.device)

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
        return [float(x) for x in values[places(described[-1][2])]] + [float(self.np.isnan(values).sum())]


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


def _answers() -> TextIO:
    """Where answers go: what was standard output, which is for errors from here on, as libraries print."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def compile_kernels() -> None:
    """Compile sources to machine code of this machine's GPU, as asked for by lines of JSON."""
    answers = _answers()
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
    answers = _answers()
    if kind == ANSOR:
        from parcel_ansor import AnsorTimer  # beside this file

        timer: Timer = AnsorTimer()
    else:
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


if __name__ == "__main__":
    compile_kernels() if sys.argv[1] == COMPILE else work(sys.argv[1])
