"""How many processors this process may use, and how many threads TVM is to run on them.

A container may be held to the time of a few processors of a machine with many (``docker --cpus 4``, a limit
in Kubernetes) and still be shown all of them. Or it may be held to some of them (``taskset``, ``docker
--cpuset-cpus``, Slurm), and TVM, which counts those of the machine, does not look. It takes half of what it
counts: 32 threads that share 4 processors wait for each other at the end of each parallel loop, and what is
measured of them is chance.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
PROCESSORS = Path("/sys/devices/system/cpu")
THREADS = "TVM_NUM_THREADS"
BIND = "TVM_BIND_THREADS"
ENOUGH = 0.01  # of a processor, which is no limit that anyone meant


def usable_cores() -> int:
    """How many cores this process may run on (a container or ``taskset`` may allow fewer than the machine
    has)."""
    shown, limit = _shown(), quota()
    return shown if limit is None else max(1, min(shown, math.ceil(limit)))


def quota() -> float | None:
    """The processors' time that a container may take, in processors; None without a limit."""
    found = [limit for group in groups("cpu") if (limit := _quota_of(group)) is not None]
    return min(found, default=None)


def groups(controller: str) -> Iterator[Path]:
    """This process's control group and those around it, in the folders of either version of them.

    In a container that is the root, as it is shown there; a group of systemd's or Slurm's lies below.
    """
    for name in ("", controller):
        root = CGROUP / name
        inner = _group(controller if name else "").strip("/")
        yield from (root / part for part in (Path(inner), *Path(inner).parents)) if inner else (root,)


def _group(controller: str) -> str:
    """The path of this process's control group among those of a controller; "" for the newer version's."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if controller in names.split(",") and ".." not in path:
            return path
    return ""


def _quota_of(group: Path) -> float | None:
    try:
        allowed, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):  # the older version of control groups
        try:
            allowed, period = ((group / f"cpu.cfs_{x}_us").read_text() for x in ("quota", "period"))
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
    held, threads, allowed = found
    return (
        f"{held}, and TVM would run programs on {threads} threads: set {THREADS}={allowed}, where programs "
        "are tuned and where they run"
    )


def limit_threads(environment: MutableMapping[str, str]) -> str:
    """Have TVM run as many threads as a container's limit or a mask leaves, before it is imported.

    Parameters
    ----------
    environment : mutable mapping
        `os.environ`; what is set in it stays.

    Returns
    -------
    str
        What was done, for the user to do likewise where the programs are run; "" for nothing.
    """
    leave_unbound(environment)
    found = None if environment.get(THREADS) else _held(environment)
    if found is None:
        return ""
    held, _, allowed = found
    environment[THREADS] = str(allowed)
    return (
        f"{held} of {_online()}: programs run on {allowed} threads; set {THREADS}={allowed} where they are "
        "used, too"
    )


def leave_unbound(environment: MutableMapping[str, str]) -> None:
    """Have TVM tie no thread to a core where this process is held to some processors, or neighbours share
    one.

    TVM takes the machine's first, whichever these are: threads would leave the mask, or share a core.

    Parameters
    ----------
    environment : mutable mapping
        `os.environ`; left alone where the variable is set.
    """
    if _mask() is not None or _neighbours_share():
        environment.setdefault(BIND, "0")


def name_threads(tvm: Any, environment: MutableMapping[str, str] | None = None) -> None:
    """Tell TVM the number of threads that it takes by itself, or the fewer of a mask, unless it is told one.

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
    leave_unbound(environment)
    count = getattr(tvm.runtime, "num_threads", None)
    if count is None or requested_threads(environment):
        return
    if _mask() is not None:  # asked, TVM would start as many as for the whole machine
        environment[THREADS] = str(named_threads(environment))
    else:
        with unbound():
            environment[THREADS] = str(count())
    if environment is os.environ:
        _own[THREADS] = _named[THREADS] = environment[THREADS]


def named_threads(environment: Mapping[str, str]) -> int:
    """The number of threads that `name_threads` tells TVM, as far as that can be known without it."""
    found = _held(environment) if _mask() is not None and not requested_threads(environment) else None
    return tvm_threads(environment) if found is None else found[-1]


def is_default(environment: Mapping[str, str]) -> bool:
    """Whether the number of threads is TVM's own, told or not told to it here, and nobody's choice."""
    return not requested_threads(environment) or environment.get(THREADS) == _named.get(THREADS)


def set_here(name: str, value: str) -> None:
    """Set a variable of this process's environment, which nobody has told: it is no wish of the user's."""
    os.environ[name] = _own[name] = value
    _named.pop(name, None)


def thread_env(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what was set here: what a process that is started anew is to go by."""
    return {name: value for name, value in environment.items() if _own.get(name) != value}


_own: dict[str, str] = {}  # what this module, and who asks it to, has set in `os.environ`
_named: dict[str, str] = {}  # of that, what TVM would have taken by itself


def model_threads(environment: Mapping[str, str]) -> int:
    """How many threads a tuned model runs on: those that the environment says, or one for each core.

    TVM by itself takes half of an x86 machine's processors, for two of them may share a core. Where none do,
    as on many virtual machines, half of the cores would stand idle.

    Returns
    -------
    int
        As TVM counts them, where the system does not say which processors share a core; no more than a
        container's limit and a mask leave.
    """
    return requested_threads(environment) or _left(_whole_cores() or tvm_threads(environment))


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
    return len(_cores_of(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 0


def _neighbours_share() -> bool:
    """Whether two of the processors that TVM ties threads to, as many as there are cores, are of one core.

    It takes them by their greatest frequency, and those alike by their number. Neighbours share a core in WSL
    2, on Hyper-V and in processors of Intel's with cores of two kinds; those of a core are alike, and others
    are not, where each core has a frequency of its own, as AMD's desktops do. Another core would stand idle.
    """
    cores = len(_cores_of(STARTED_IN))
    order = sorted(range(_online()), key=lambda number: (-_frequency(number), number))
    return 0 < len(_cores_of(order[:cores])) < cores


def _frequency(processor: int) -> int:
    """The greatest one, in kHz; 0 where the system does not say."""
    try:
        return int((PROCESSORS / f"cpu{processor}" / "cpufreq" / "cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return 0


def apply_requested_threads(tvm: Any) -> None:
    """Have TVM run the programs of the thread that calls this on as many threads as it is told.

    Where processors have several greatest frequencies TVM leaves out those of the least. That is meant for
    slow cores; of ten cores, two of which may be a little faster than the others, it takes these two alone.

    Parameters
    ----------
    tvm : module
    """
    if getattr(_thread, "told", False):
        return
    _thread.told = True
    threads = requested_threads(os.environ) or tvm_threads(os.environ)
    fast = _taken_for_fast()
    if fast == _online() or 2 * fast > threads:  # of slow cores and fast ones the fast ones may do
        return
    configure = tvm.get_global_func("runtime.config_threadpool", allow_missing=True)
    if configure is not None:
        configure(1, threads)  # 1: the fastest first, as by itself


def _taken_for_fast() -> int:
    found = [_frequency(number) for number in range(_online())]
    return len(found) - (found.count(min(found)) if min(found) < max(found) else 0)


_thread = threading.local()


def _cores_of(processors: Iterable[int]) -> set[str]:
    """A text for each core that has one of the processors; none where the system does not say."""
    try:
        return {
            (PROCESSORS / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
            for number in processors
        }
    except OSError:
        return set()


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


def unpin_main_thread() -> None:
    """Undo what TVM has done to this thread where it ran a program's parallel loop: it is tied to a core.

    A search that begins then would count that core alone, and so would all the processes that it starts.
    """
    if not hasattr(os, "sched_getaffinity") or "tvm" not in sys.modules or os.environ.get(BIND) == "0":
        return
    before = _before_tvm or STARTED_IN
    if os.sched_getaffinity(0) < before:
        os.sched_setaffinity(0, before)


def configure_before_import() -> None:
    """TVM is imported next: on which processors this thread may run until then is the user's choice."""
    global _before_tvm
    if "tvm" not in sys.modules and hasattr(os, "sched_getaffinity"):
        _before_tvm = frozenset(os.sched_getaffinity(0))


_before_tvm: frozenset[int] = frozenset()


def requested_threads(environment: Mapping[str, str]) -> int:
    """How many threads the environment tells TVM to run; 0 where it tells nothing."""
    for name in (THREADS, "OMP_NUM_THREADS"):  # TVM reads them in this order
        if (given := environment.get(name, "")).isdigit():
            return int(given)
    return 0


def _held(environment: Mapping[str, str]) -> tuple[str, int, int] | None:
    """What holds this process, the threads that TVM would run, and the fewer that this leaves; None where it
    leaves as many."""
    threads, mask, limit = tvm_threads(environment), _mask(), quota()
    allowed = _left(threads)
    if threads <= allowed:
        return None
    if limit is not None and (mask is None or limit < mask):
        return f"this container may take the time of {limit:g} processors", threads, allowed
    # Which processors these are is known, so two threads need not share a core.
    return f"this process may run on {mask} processors", threads, min(allowed, _whole_cores() or allowed)


def _left(threads: int) -> int:
    """So many threads, or the fewer that a container's limit and a mask leave."""
    limits = [limit for limit in (quota(), _mask()) if limit is not None]
    return max(1, math.floor(min([threads, *limits])))


def tvm_threads(environment: Mapping[str, str]) -> int:
    """As TVM counts them: those that it is told, or half of an x86 machine's processors, with a mask too."""
    halved = platform.machine() in ("x86_64", "AMD64", "i686")
    return requested_threads(environment) or max(1, _online() // 2 if halved else _online())


def _mask() -> int | None:
    """How many processors this process was started on, where these are fewer than the machine's."""
    return STARTED_ON if _online() > STARTED_ON else None


def _online() -> int:
    """The machine's processors, as C++'s hardware_concurrency counts them, by which TVM goes."""
    return max(1, os.sysconf("SC_NPROCESSORS_ONLN"))


def _shown() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return _online()


#: Not asked for again: when TVM has run a parallel loop, its thread may be tied to fewer (`unbound`).
STARTED_ON = _shown()
STARTED_IN = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
