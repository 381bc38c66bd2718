"""Lets TVM's worker processes start without PyTorch, which apache-tvm-ffi imports wherever it is installed.

A worker that builds or times a processor's programs makes no use of it, and takes 2 s of a processor to start
instead of 6. On a GPU PyTorch stays: its import is what loads the CUDA libraries that came with it.
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

SITE = Path(__file__).resolve().parent / "no_torch_site"  # its torch.py says that there is none


@contextmanager
def no_torch(wanted: bool = True) -> Iterator[None]:
    """Python processes that start meanwhile cannot import torch, nor can those that they start.

    Parameters
    ----------
    wanted : bool
        False for nothing at all.
    """
    if not wanted:
        yield
        return
    before = os.environ.get(python_path.NAME)
    python_path.prepend(SITE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(python_path.NAME, None)
        else:
            os.environ[python_path.NAME] = before


def started(start: Callable[[], T], *, torch: bool) -> tuple[T, bool]:
    """What `start` returns, and whether its processes may import PyTorch.

    Parameters
    ----------
    start : callable
        Starts processes and waits until they answer. Where it raises without PyTorch it is called once more,
        with it, and what that raises is raised.
    torch : bool
        Whether they may from the first.
    """
    if not torch:
        try:
            with no_torch():
                return start(), False
        except Exception:
            logger.debug("wmsched: with PyTorch, for workers do not start without", exc_info=True)
    return start(), True
