"""Lets TVM's worker processes start without PyTorch, which apache-tvm-ffi imports wherever it is installed.

A worker that builds or times a processor's programs makes no use of it, and takes 2 s of a processor to start
instead of 6. On a GPU PyTorch stays: its import is what loads the CUDA libraries that came with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SITE = Path(__file__).resolve().parent / "no_torch_site"  # its torch.py says that there is none
PATH = "PYTHONPATH"


@contextmanager
def no_torch(wanted: bool = True) -> Iterator[None]:
    """Python processes that start meanwhile cannot import torch, nor can those that they start.

    Parameters
    ----------
    wanted : bool
        False for nothing at all.
    """
    before = os.environ.get(PATH)
    if wanted:
        os.environ[PATH] = str(SITE) + (os.pathsep + before if before else "")
    try:
        yield
    finally:
        if wanted and before is None:
            os.environ.pop(PATH, None)
        elif wanted:
            os.environ[PATH] = str(before)
