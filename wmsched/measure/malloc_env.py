"""Lets programs be timed with their buffers alike in every process.

glibc maps a buffer of its own above a size that moves with use, so one process has its tensors at an
offset of 64 bytes into a page, another anywhere. Where an input lies from an output modulo a page decides
whether loads wait for stores (4K aliasing): one schedule of ResNet-50's max pooling took 70 us with most
pairs of buffers and 130 to 280 with others, the same in each repeat. With the size fixed all larger buffers
are mapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

STEADY = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc reads it when a process starts


@contextmanager
def steady_buffers() -> Iterator[None]:
    """Processes that start meanwhile have steady buffers; what the user has set stays as it is."""
    ours = {name: value for name, value in STEADY.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
