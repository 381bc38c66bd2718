"""How many processors this process may use, and how many threads TVM is to run on them.

A container may be held to the time of a few processors of a machine with many (``docker --cpus 4``, a limit
in Kubernetes) and still be shown all of them. TVM takes half of those that it is shown: 32 threads that share
the time of 4 wait for each other at the end of each parallel loop, and what is measured of them is chance.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CGROUP = Path("/sys/fs/cgroup")
PROCESSORS = Path("/sys/devices/system/cpu")
THREADS = "TVM_NUM_THREADS"
ENOUGH = 0.01  # of a processor, which is no limit that anyone meant


def usable_cores() -> int:
    """How many cores this process may run on (a container or ``taskset`` may allow fewer than the machine
    has)."""
    shown, limit = _shown(), quota()
    return shown if limit is None else max(1, min(shown, math.ceil(limit)))


def quota() -> float | None:
    """The processors' time that a container may take, in processors; None without a limit."""
    try:
        allowed, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):  # the older version of control groups
        try:
            allowed, period = ((CGROUP / "cpu" / f"cpu.cfs_{x}_us").read_text() for x in ("quota", "period"))
        except OSError:
            return None
    try:
        found = int(allowed) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return found if found > ENOUGH else None  # the older one writes -1 for none


def too_many_threads() -> str:
    """What is wrong with the number of threads that TVM would run here; "" if nothing is."""
    found = _held(os.environ)
    if found is None:
        return ""
    limit, threads, allowed = found
    return (
        f"this container may take the time of {limit:g} processors, and TVM would run programs on {threads} "
        f"threads: set {THREADS}={allowed}, where programs are tuned and where they run"
    )


def hold_threads(environment: MutableMapping[str, str]) -> str:
    """Have TVM run as many threads as a container's limit leaves, before it is imported.

    Parameters
    ----------
    environment : mutable mapping
        `os.environ`; left alone where the variable is set.

    Returns
    -------
    str
        What was done, for the user to do likewise where the programs are run; "" for nothing.
    """
    found = None if environment.get(THREADS) else _held(environment)
    if found is None:
        return ""
    limit, _, allowed = found
    environment[THREADS] = str(allowed)
    return (
        f"this container may take the time of {limit:g} processors of {_shown()}: programs run on "
        f"{allowed} threads; set {THREADS}={allowed} where they are used, too"
    )


def name_threads(tvm: Any, environment: MutableMapping[str, str] | None = None) -> None:
    """Tell TVM the number of threads that it takes by itself, unless it is told one.

    Untold it counts the machine's processors anew at each parallel loop, by reading a file: 2.7
    microseconds on an Emerald Rapids Xeon, where a layer norm's mean takes 3.

    Parameters
    ----------
    tvm : module
        Which says how many these are; a TVM that does not, before 0.9, is told nothing.
    environment : mutable mapping, optional
        `os.environ`, which the processes that are started from here inherit.
    """
    environment = os.environ if environment is None else environment
    count = getattr(tvm.runtime, "num_threads", None)
    if count is None or told_threads(environment):
        return
    with unbound():
        environment[THREADS] = str(count())


def model_threads(environment: Mapping[str, str]) -> int:
    """How many threads a tuned model runs on: those that the environment says, or one for each core.

    TVM by itself takes half of an x86 machine's processors, for two of them may share a core. Where none do,
    as on many virtual machines, half of the cores would stand idle.

    Returns
    -------
    int
        As TVM counts them, where the system does not say which processors share a core; no more than a
        container's limit leaves.
    """
    return told_threads(environment) or _left(_whole_cores() or tvm_threads(environment), quota())


def idle_cores(environment: Mapping[str, str]) -> str:
    """What to say where TVM by itself leaves cores idle; "" where it does not."""
    own, cores = tvm_threads(environment), model_threads(environment)
    if cores <= own:
        return ""
    return (
        f"programs run on {own} of {cores} cores, for TVM takes half of the processors: {THREADS}={cores}, "
        "here and where they are used, takes all"
    )


def _whole_cores() -> int:
    """Cores of which this process may use a processor; 0 where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return 0
    try:
        return len(
            {
                (PROCESSORS / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
                for number in os.sched_getaffinity(0)
            }
        )
    except OSError:
        return 0


@contextmanager
def unbound() -> Iterator[None]:
    """Let the thread go that TVM ties to one core when it first runs a parallel loop or counts its threads.

    Threads and processes that are made later would inherit that, and `usable_cores` would count one.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        yield
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)


def told_threads(environment: Mapping[str, str]) -> int:
    """How many threads the environment tells TVM to run; 0 where it tells nothing."""
    for name in (THREADS, "OMP_NUM_THREADS"):  # TVM reads them in this order
        if (given := environment.get(name, "")).isdigit():
            return int(given)
    return 0


def _held(environment: Mapping[str, str]) -> tuple[float, int, int] | None:
    """A limit, the threads that TVM would run, and the fewer that it leaves; None where it leaves as many."""
    limit, threads = quota(), tvm_threads(environment)
    allowed = _left(threads, limit)
    return None if limit is None or threads <= allowed else (limit, threads, allowed)


def _left(threads: int, limit: float | None) -> int:
    """So many threads, or the fewer that a limit leaves."""
    return threads if limit is None else max(1, min(threads, math.floor(limit)))


def tvm_threads(environment: Mapping[str, str]) -> int:
    """As TVM counts them: those that it is told, or half of an x86 machine's processors."""
    halved = platform.machine() in ("x86_64", "AMD64", "i686")
    return told_threads(environment) or max(1, _shown() // 2 if halved else _shown())


def _shown() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
