"""Roofline of this machine, measured: arithmetic, memory by size, and the handing over of a parallel loop."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wmsched.toolchain import parallel_launch
from wmsched.toolchain.host_cpu import read_cpuinfo

__all__ = ["Roofline", "measure"]

OPTIONS = ("-std=gnu++17", "-O3", "-march=native", "-pthread", "-fvisibility=hidden")
SIZES = tuple(1 << power for power in range(15, 29))  # bytes that all threads read together
LEAST = 48 << 20  # bytes of a try
TRIES, LAUNCHES = 10, 1000
PART = 20e-6  # seconds of a part of the loop that is handed over
MAX_FASTER = (
    8.0  # a function over its arithmetic or its traffic at the measured peaks, which may be disturbed
)
MAX_SLOWER = 64.0  # a function's best schedule over one thread at these peaks
LAUNCH_SECONDS = 2e-5  # of a call with parallel loops

logger = logging.getLogger("wmsched")


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """What a number of threads can do at most; NaN, or empty, where it cannot be measured.

    Parameters
    ----------
    threads : int
    gflops : float
        1e9 float32 operations a second, by multiply-adds out of registers.
    int8 : float
        1e9 operations a second on bytes, by the instructions of AVX-512 VNNI; NaN without them.
    bandwidth : tuple of (int, float)
        Bytes that are read again and again, and 1e9 bytes a second.
    handover : float
        Seconds by which a parallel loop takes longer than its parts.
    """

    threads: int
    gflops: float = math.nan
    int8: float = math.nan
    bandwidth: tuple[tuple[int, float], ...] = ()
    handover: float = math.nan

    def gbs(self, size: float) -> float:
        """1e9 bytes a second at which so many bytes are read; between measured sizes by their logarithm.

        A larger set is never the quicker one: what a measurement says else is noise.
        """
        if not self.bandwidth:
            return math.nan
        sizes = [one for one, _ in self.bandwidth]
        rates = [max(rate for _, rate in self.bandwidth[k:]) for k in range(len(sizes))]
        k = bisect_left(sizes, size)
        if k == 0 or k == len(sizes):
            return rates[min(k, len(sizes) - 1)]
        part = math.log(size / sizes[k - 1]) / math.log(sizes[k] / sizes[k - 1])
        return rates[k - 1] + part * (rates[k] - rates[k - 1])

    def plausible(self, flop: float, size: float, written: float) -> tuple[float, float]:
        """Return the least and the most seconds that a function may take; (0, inf) where it is not known.

        The bounds are wide: a time outside them is no measurement of the function, but of a disturbance.

        Parameters
        ----------
        flop : float
            Its operations.
        size, written : float
            Bytes of its arguments, and of those that it writes. It may read few of the others, as of a table.
        """
        if not self.bandwidth or math.isnan(self.gflops):
            return 0.0, math.inf
        peak = max(self.gflops, 0.0 if math.isnan(self.int8) else self.int8)
        least = max(flop / peak, written / self.gbs(written)) / 1e9 / MAX_FASTER
        alone = self.threads * (flop / self.gflops + size / self.gbs(math.inf)) / 1e9
        return least, MAX_SLOWER * (alone + LAUNCH_SECONDS)


def measure(threads: int, *, sizes: Sequence[int] = SIZES, tries: int = TRIES) -> Roofline:
    """Measure this machine in about two seconds; the best of `tries` counts."""
    path = _compiled()
    if not path:
        return Roofline(threads=threads)
    library = ctypes.CDLL(path)
    for name in ("peak", "peak_bytes", "bandwidth", "handover"):
        getattr(library, f"wmsched_{name}").restype = ctypes.c_double
    library.wmsched_bandwidth.argtypes = (ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    library.wmsched_handover.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_int)
    read = [(size, library.wmsched_bandwidth(size, threads, tries, LEAST) / 1e9) for size in sizes]
    return Roofline(
        threads=threads,
        gflops=library.wmsched_peak(threads, tries) / 1e9,
        int8=library.wmsched_peak_bytes(threads, tries) / 1e9 or math.nan,
        bandwidth=tuple((size, rate) for size, rate in read if rate > 0),
        handover=_handover(library, threads),
    )


def _handover(library: ctypes.CDLL, threads: int) -> float:
    """Of our launch, which a loaded model has set up; NaN where it is off or nothing is handed over."""
    launch = parallel_launch.launch_path()
    if not launch or threads < 2:
        return math.nan
    function = ctypes.cast(ctypes.CDLL(launch).wmsched_parallel_launch, ctypes.c_void_p)
    spent = float(library.wmsched_handover(function, threads, PART, LAUNCHES))
    return spent if spent < PART else math.nan


@functools.cache
def _compiled() -> str:
    from wmsched.toolchain.compile_cache import compiled

    try:
        source = Path(__file__).resolve().with_name("roofline.cc")
        vendor, flags = read_cpuinfo()  # a home folder may be another machine's too
        cpu = hashlib.sha256(" ".join([vendor, *sorted(flags)]).encode()).hexdigest()
        path = compiled("roofline", source, OPTIONS, cpu, compiler=parallel_launch.compiler())
        ctypes.CDLL(str(path))
        return str(path)
    except Exception as error:
        logger.warning(
            "wmsched: what this machine allows is not measured: the measurement cannot be compiled (%s: %s)",
            type(error).__name__,
            str(error)[-300:],
        )
        return ""
