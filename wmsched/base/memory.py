"""Memory that this process may still allocate, within the machine and its container."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from wmsched.base.cores import groups

LIMIT_AND_USAGE_FILES = (  # cgroup v2, cgroup v1
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def available_bytes() -> int:
    """Return the bytes that can be allocated without swapping, by Linux's estimate and the cgroup limits.

    Other systems report all of the machine's memory.
    """
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    free = int(found[1]) << 10 if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([free, *_left_in_cgroups()])


def _left_in_cgroups() -> Iterator[int]:
    """Yield the bytes left in each control group that has a limit."""
    for group in groups("memory"):
        for limit, used in LIMIT_AND_USAGE_FILES:
            try:
                most, now = (int((group / name).read_text()) for name in (limit, used))
            except (OSError, ValueError):  # no such file, or "max"
                continue
            yield max(0, most - now + _unused_file_bytes(group / "memory.stat"))


def _unused_file_bytes(stat: Path) -> int:
    """Return the bytes of inactive page cache in a control group, which the kernel frees first."""
    try:
        found = re.search(r"^inactive_file (\d+)$", stat.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
