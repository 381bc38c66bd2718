"""Start TVM's worker processes without PyTorch, which apache-tvm-ffi imports wherever it is installed.

Works around apache-tvm-ffi 0.1.14; remove when it does not import torch. Workers for a CPU do not use
PyTorch, and without it they start in 2 s of CPU time instead of 6. So do builders for a GPU that find CUDA's
libraries by themselves. Runners for a GPU keep PyTorch, because its import loads the libraries of its wheel.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from wmsched.toolchain import python_path

logger = logging.getLogger("wmsched")

T = TypeVar("T")

SITE = Path(__file__).resolve().parent / "no_torch_site"  # its torch.py raises ModuleNotFoundError


@contextmanager
def no_torch(wanted: bool = True) -> Iterator[None]:
    """Start child processes without torch during the block; their own children lack it too.

    Parameters
    ----------
    wanted : bool
        False to do nothing.
    """
    if not wanted:
        yield
        return
    before = os.environ.get(python_path.VARIABLE)
    python_path.prepend(SITE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(python_path.VARIABLE, None)
        else:
            os.environ[python_path.VARIABLE] = before


def started(start: Callable[[], T], *, torch: bool) -> tuple[T, bool]:
    """Start worker processes without PyTorch, and with PyTorch if that fails.

    Parameters
    ----------
    start : callable
        Starts the processes and waits for them. It is called again with PyTorch if it raises without.
        The second call's exception is passed on.
    torch : bool
        Whether to start with PyTorch at once.

    Returns
    -------
    result
        The return value of `start`.
    bool
        Whether the processes may import PyTorch.
    """
    if not torch:
        try:
            with no_torch():
                return start(), False
        except Exception:
            logger.debug("wmsched: with PyTorch, for workers do not start without", exc_info=True)
    return start(), True
