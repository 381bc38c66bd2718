"""Emulated time of a program on a processor with more cores than this one (AutoScheduler's TVM).

A parallel loop of a program compiled by TVM is one call of the runtime, which hands each thread an equal
share of the iterations, rounded up, the first thread a full one. Here that call runs the first thread's share
alone and returns. What is timed then is what the slowest thread takes, and all that is not parallel: the time
on so many cores that have a cache each and memory enough for all. What real ones share (memory, the last
level of cache, a clock that falls when all are busy) and what it takes to wake threads up is not in it, so
these times are for comparing schedules of one workload, not for comparing machines. The rest of the output is
not computed.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: TVM's backend API: ``int TVMBackendParallelLaunch(FTVMParallelLambda, void* cdata, int num_task)``.
POINTER = "__TVMBackendParallelLaunch"  # a library's variable that the runtime sets when it is loaded
SOURCE = """
#include <stdint.h>
typedef struct { void* sync_handle; int32_t num_task; } Group;
extern "C" {
int32_t emulated_threads = 1;
int emulated_launch(int (*body)(int, Group*, void*), void* data, int num_task) {
  Group group = {0, num_task ? num_task : emulated_threads};
  return body(0, &group, data);
}
}
"""


class Emulator:
    """Makes libraries run the first of so many threads' shares of each parallel loop.

    Parameters
    ----------
    threads : int
        How many cores the processor is to have.
    folder : path
        Where the launcher is compiled to; it has to stay while libraries are in use.

    Raises
    ------
    ValueError
        `threads` is below one.
    """

    def __init__(self, threads: int, folder: str | Path) -> None:
        if threads < 1:
            raise ValueError(f"{threads} threads cannot be emulated: at least 1")
        from tvm.contrib import cc

        source, library = Path(folder) / "launch.cc", Path(folder) / "launch.so"
        source.write_text(SOURCE, encoding="utf-8")
        cc.create_shared(str(library), [str(source)])
        self.threads, self.library = threads, str(library)

    def take(self, path: str) -> None:
        """Have the library of `path`, which is loaded in this process, launch its loops so.

        A library without a parallel loop has nothing to change.
        """
        launcher = ctypes.CDLL(self.library)
        ctypes.c_int32.in_dll(launcher, "emulated_threads").value = self.threads
        with suppress(ValueError):
            pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(path), POINTER)
            pointer.value = ctypes.cast(launcher.emulated_launch, ctypes.c_void_p).value

    def load(self, function: Any) -> Any:
        """A built module, exported and loaded again so that its loops are launched so."""
        import tvm

        folder = tempfile.mkdtemp(dir=Path(self.library).parent)
        path = f"{folder}/program.so"
        function.export_library(path)
        loaded = tvm.runtime.load_module(path)
        self.take(path)
        return loaded


@contextmanager
def emulated(threads: int) -> Iterator[Emulator | None]:
    """AutoScheduler's local runners time programs as on a processor with so many cores; with 0 as here."""
    if not threads:
        yield None
        return
    from tvm.auto_scheduler import measure

    with tempfile.TemporaryDirectory(prefix="wmsched-emulated-") as folder:
        emulator, before = Emulator(threads, folder), measure._timed_eval_func
        measure._timed_eval_func = functools.partial(_timed, emulator, before)
        try:
            yield emulator
        finally:
            measure._timed_eval_func = before


def _timed(emulator: Emulator, timed: Any, *given: Any) -> Any:
    """In the runner's process: `timed`, TVM's function or ours, with libraries that are loaded so."""
    from tvm.auto_scheduler import measure

    module = measure.module
    load = module.load_module

    def loading(path: str, *more: Any) -> Any:
        loaded = load(path, *more)
        emulator.take(path + ".so" if path.endswith((".tar", ".o")) else path)
        return loaded

    module.load_module = loading
    try:
        return timed(*given)
    finally:
        module.load_module = load
