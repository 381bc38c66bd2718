"""How much memory a process may still take: the machine's, and its container's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from wmsched.base.cores import groups

NAMES = (  # of the limit and the use, of the two versions of control groups
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def available_bytes() -> int:
    """Memory that can be had without swapping, as Linux estimates it; elsewhere all there is.

    In a container, no more than its limit leaves.
    """
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    free = int(found[1]) << 10 if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([free, *_left_in_cgroups()])


def _left_in_cgroups() -> Iterator[int]:
    """Bytes that the process's control groups may still take; nothing where there is none, or no limit."""
    for group in groups("memory"):
        for limit, used in NAMES:
            try:
                most, now = (int((group / name).read_text()) for name in (limit, used))
            except (OSError, ValueError):  # "max" is no number
                continue
            yield max(0, most - now + _unused_file_bytes(group / "memory.stat"))


def _unused_file_bytes(stat: Path) -> int:
    """What a control group holds of files that were read, and gives up first."""
    try:
        found = re.search(r"^inactive_file (\d+)$", stat.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
