"""Count the cores that this process may use, and choose the number of threads TVM runs on them.

A container may have a CPU quota of a few cores (``docker --cpus 4``, a Kubernetes limit) and still see every
core of the machine. An affinity mask (``taskset``, ``docker --cpuset-cpus``, Slurm) may allow only some
cores. TVM ignores both: it starts half as many threads as the machine has processors. 32 threads on 4 cores
wait for each other at the end of each parallel loop, and measured times become noise.
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

# Files of Linux, and environment variables of TVM.
CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
PROCESSORS = Path("/sys/devices/system/cpu")
THREADS = "TVM_NUM_THREADS"
BIND = "TVM_BIND_THREADS"
MIN_QUOTA_CORES = 0.01  # smaller CPU quotas are ignored: nobody means them


def usable_cores() -> int:
    """Return the number of cores this process may use, within its affinity mask and CPU quota."""
    shown, limit = _visible_cores(), quota()
    return shown if limit is None else max(1, min(shown, math.ceil(limit)))


def quota() -> float | None:
    """Return the container's CPU quota in cores; None without a limit."""
    found = [limit for group in groups("cpu") if (limit := _quota_of(group)) is not None]
    return min(found, default=None)


def groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and its parents, for cgroup v1 and v2.

    A container sees its own group as the root. Groups of systemd or Slurm lie below the root.
    """
    for name in ("", controller):
        root = CGROUP / name
        inner = _group(controller if name else "").strip("/")
        yield from (root / part for part in (Path(inner), *Path(inner).parents)) if inner else (root,)


def _group(controller: str) -> str:
    """Return the path of this process's control group for a v1 controller; "" asks for the v2 group."""
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
    except (OSError, ValueError):  # cgroup v1
        try:
            allowed, period = ((group / f"cpu.cfs_{x}_us").read_text() for x in ("quota", "period"))
        except OSError:
            return None
    try:
        found = int(allowed) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return found if found > MIN_QUOTA_CORES else None  # cgroup v1 writes -1 for "no limit"


def too_many_threads() -> str:
    """Return a warning if TVM would run more threads than this process has cores; "" otherwise."""
    found = _restriction(os.environ)
    if found is None:
        return ""
    held, threads, allowed = found
    return (
        f"{held}, and TVM would run programs on {threads} threads: set {THREADS}={allowed}, where programs "
        "are tuned and where they run"
    )


def limit_threads(environment: MutableMapping[str, str]) -> str:
    """Limit TVM's threads to the CPU quota or affinity mask; call it before TVM is imported.

    Parameters
    ----------
    environment : mutable mapping
        `os.environ`. A thread count that the user has set stays.

    Returns
    -------
    str
        The change, as advice for the machine that will run the programs; "" if nothing changed.
    """
    leave_unbound(environment)
    found = None if environment.get(THREADS) else _restriction(environment)
    if found is None:
        return ""
    held, _, allowed = found
    environment[THREADS] = str(allowed)
    return (
        f"{held} of {_online()}: programs run on {allowed} threads; set {THREADS}={allowed} where they are "
        "used, too"
    )


def leave_unbound(environment: MutableMapping[str, str]) -> None:
    """Turn off TVM's thread binding where it would pin threads outside the mask or two to one core.

    TVM pins its threads to the machine's first processors, whatever they are.

    Parameters
    ----------
    environment : mutable mapping
        `os.environ`. A binding that the user has set stays.
    """
    if _mask() is not None or _neighbours_share():
        environment.setdefault(BIND, "0")


def name_threads(tvm: Any, environment: MutableMapping[str, str] | None = None) -> None:
    """Set TVM_NUM_THREADS to the count TVM would choose, or to the mask's, unless the user set one.

    TVM reads a file to count the processors at each parallel loop when the variable is unset. That takes 2.7
    microseconds on an Emerald Rapids Xeon, where the mean of a layer norm takes 3.

    Parameters
    ----------
    tvm : module
        Returns its thread count. TVM before 0.9 has no such function and is left alone.
    environment : mutable mapping, optional
        `os.environ`, which child processes inherit.
    """
    environment = os.environ if environment is None else environment
    leave_unbound(environment)
    count = getattr(tvm.runtime, "num_threads", None)
    if count is None or requested_threads(environment):
        return
    if _mask() is not None:  # TVM's count would be the whole machine's
        environment[THREADS] = str(named_threads(environment))
    else:
        with unbound():
            environment[THREADS] = str(count())
    if environment is os.environ:
        _own[THREADS] = _named[THREADS] = environment[THREADS]


def named_threads(environment: Mapping[str, str]) -> int:
    """Return the thread count that `name_threads` sets, as far as it is known without TVM."""
    found = _restriction(environment) if _mask() is not None and not requested_threads(environment) else None
    return tvm_threads(environment) if found is None else found[-1]


def is_default(environment: Mapping[str, str]) -> bool:
    """Return whether the thread count is TVM's own default, and not a choice of the user."""
    return not requested_threads(environment) or environment.get(THREADS) == _named.get(THREADS)


def set_here(name: str, value: str) -> None:
    """Set a variable of this process's environment, and record that it is not the user's choice."""
    os.environ[name] = _own[name] = value
    _named.pop(name, None)


def thread_env(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables set by this module; for a newly started process."""
    return {name: value for name, value in environment.items() if _own.get(name) != value}


_own: dict[str, str] = {}  # variables that `set_here` and `name_threads` set in `os.environ`
_named: dict[str, str] = {}  # the part of `_own` that equals TVM's own default


def model_threads(environment: Mapping[str, str]) -> int:
    """Return the thread count for a tuned model: the environment's, or one for each core.

    TVM's default is half of an x86 machine's processors, because two of them may share a core. Many virtual
    machines share none, and half of their cores would be idle.

    Returns
    -------
    int
        At most what the CPU quota and the mask allow. TVM's count where the system does not report
        which processors share a core.
    """
    return requested_threads(environment) or _cap_threads(_whole_cores() or tvm_threads(environment))


def idle_cores(environment: Mapping[str, str]) -> str:
    """Return a hint if TVM's default leaves cores idle; "" otherwise."""
    own, cores = tvm_threads(environment), model_threads(environment)
    if cores <= own:
        return ""
    return (
        f"programs run on {own} of {cores} cores, for TVM takes half of the processors: {THREADS}={cores}, "
        "here and where they are used, takes all"
    )


def _whole_cores() -> int:
    """Return the number of physical cores in the affinity mask; 0 where the system does not report them."""
    return len(_cores_of(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 0


def _neighbours_share() -> bool:
    """Return whether two of the processors that TVM pins threads to share a core, so another core idles.

    TVM pins one thread a core, in order of maximum frequency and then of number. Neighbours share a core in
    WSL 2, on Hyper-V and on Intel's hybrid processors. Siblings of a core have one frequency; AMD's desktops
    have another for each core.
    """
    cores = len(_cores_of(STARTED_IN))
    order = sorted(range(_online()), key=lambda number: (-_frequency(number), number))
    return 0 < len(_cores_of(order[:cores])) < cores


def _frequency(processor: int) -> int:
    """Return a processor's maximum frequency in kHz; 0 where the system does not report it."""
    try:
        return int((PROCESSORS / f"cpu{processor}" / "cpufreq" / "cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return 0


def apply_requested_threads(tvm: Any) -> None:
    """Make TVM run programs of the calling thread on the requested number of threads.

    TVM leaves out the processors of the lowest maximum frequency, which is meant for efficiency cores. It
    also does so for ten cores of which two are slightly faster, and then runs on those two alone.

    Parameters
    ----------
    tvm : module
    """
    if getattr(_thread, "told", False):
        return
    _thread.told = True
    threads = requested_threads(os.environ) or tvm_threads(os.environ)
    fast = _count_fast_cores()
    if fast == _online() or 2 * fast > threads:  # enough fast cores: keep TVM's choice
        return
    configure = tvm.get_global_func("runtime.config_threadpool", allow_missing=True)
    if configure is not None:
        configure(1, threads)  # 1: fastest cores first, as TVM's default


def _count_fast_cores() -> int:
    found = [_frequency(number) for number in range(_online())]
    return len(found) - (found.count(min(found)) if min(found) < max(found) else 0)


_thread = threading.local()


def _cores_of(processors: Iterable[int]) -> set[str]:
    """Return an identifier for each core of the processors; empty where the system does not report them."""
    try:
        return {
            (PROCESSORS / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
            for number in processors
        }
    except OSError:
        return set()


@contextmanager
def unbound() -> Iterator[None]:
    """Restore this thread's affinity mask at the end of the block.

    TVM pins the calling thread to one core when it first runs a parallel loop or counts its threads. Later
    threads and processes would inherit that mask, and `usable_cores` would return 1.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        yield
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)


def unpin_main_thread() -> None:
    """Restore this thread's affinity mask, if TVM has pinned it to one core in a parallel loop.

    A search would otherwise count only that core, and so would its child processes.
    """
    if not hasattr(os, "sched_getaffinity") or "tvm" not in sys.modules or os.environ.get(BIND) == "0":
        return
    before = _before_tvm or STARTED_IN
    if os.sched_getaffinity(0) < before:
        os.sched_setaffinity(0, before)


def configure_before_import() -> None:
    """Remember this thread's affinity mask, the user's choice; call it just before TVM is imported."""
    global _before_tvm
    if "tvm" not in sys.modules and hasattr(os, "sched_getaffinity"):
        _before_tvm = frozenset(os.sched_getaffinity(0))


_before_tvm: frozenset[int] = frozenset()


def requested_threads(environment: Mapping[str, str]) -> int:
    """Return the thread count that the environment sets; 0 where it sets none."""
    for name in (THREADS, "OMP_NUM_THREADS"):  # TVM reads them in this order
        if (given := environment.get(name, "")).isdigit():
            return int(given)
    return 0


def _restriction(environment: Mapping[str, str]) -> tuple[str, int, int] | None:
    """Return (what limits this process, TVM's thread count, the allowed count); None if TVM fits."""
    threads, mask, limit = tvm_threads(environment), _mask(), quota()
    allowed = _cap_threads(threads)
    if threads <= allowed:
        return None
    if limit is not None and (mask is None or limit < mask):
        return f"this container may take the time of {limit:g} processors", threads, allowed
    # The mask tells which processors share a core, so one thread a core is enough.
    return f"this process may run on {mask} processors", threads, min(allowed, _whole_cores() or allowed)


def _cap_threads(threads: int) -> int:
    """Return `threads`, or fewer if the CPU quota or the mask allows fewer."""
    limits = [limit for limit in (quota(), _mask()) if limit is not None]
    return max(1, math.floor(min([threads, *limits])))


def tvm_threads(environment: Mapping[str, str]) -> int:
    """Return the thread count TVM uses: the requested one, or half of an x86 machine's processors."""
    halved = platform.machine() in ("x86_64", "AMD64", "i686")
    return requested_threads(environment) or max(1, _online() // 2 if halved else _online())


def _mask() -> int | None:
    """Return the number of processors in the mask at start; None where the mask has all of them."""
    return STARTED_ON if _online() > STARTED_ON else None


def _online() -> int:
    """Return the machine's processor count as C++'s hardware_concurrency, which TVM uses."""
    return max(1, os.sysconf("SC_NPROCESSORS_ONLN"))


def _visible_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return _online()


#: Affinity mask at start. Read once: TVM may pin its thread later (`unbound`).
STARTED_ON = _visible_cores()
STARTED_IN = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
