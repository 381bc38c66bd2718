"""What a machine can do at most and at least: bounds of a plausible time of a function; needs no TVM.

Bounds are wide. A time outside them is no measurement of the function, but of what disturbed it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

from wmsched.measure.clock_probe import PRODUCTS, SIDE, products

BEATS = 5  # of which the shortest counts
COPIED_BYTES = 1 << 26  # beyond the caches
MAX_FASTER = 8.0  # a core's peak over NumPy's small products, and memory's over a copy by one thread
MAX_SLOWER = 64.0  # a function's best schedule over arithmetic and traffic at the machine's measured rates
LAUNCH_SECONDS = 2e-5  # of a call with parallel loops


@dataclass(frozen=True)
class Machine:
    """Measured rates of one thread.

    Parameters
    ----------
    flops : float
        Floating-point operations a second.
    bandwidth : float
        Bytes a second, read and written.
    threads : int
    """

    flops: float
    bandwidth: float
    threads: int

    def bounds(self, flop: float, size: float, written: float = 0.0) -> tuple[float, float]:
        """Return the least and the most plausible seconds of a function.

        Parameters
        ----------
        flop : float
            Its operations.
        size, written : float
            Bytes of its arguments, and of those that it writes. It may read few of the others, as of a table.
        """
        arithmetic = flop / self.flops
        least = max(arithmetic, written / self.bandwidth) / self.threads / MAX_FASTER
        return least, MAX_SLOWER * (arithmetic + size / self.bandwidth + LAUNCH_SECONDS)


@functools.cache
def this_machine(threads: int) -> Machine:
    """Return this machine's rates; takes a tenth of a second."""
    import numpy as np

    source = np.ones(COPIED_BYTES // 8)
    target = np.empty_like(source)

    def copy() -> float:
        start = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - start

    return measured(products(), copy, threads)


def measured(beat: Callable[[], float], copy: Callable[[], float], threads: int) -> Machine:
    """Return the rates by the shortest of several timings of a beat of the clock probe and of a copy."""
    flops = 2 * SIDE**3 * PRODUCTS / min(beat() for _ in range(BEATS))
    return Machine(flops, 2 * COPIED_BYTES / min(copy() for _ in range(BEATS)), threads)
