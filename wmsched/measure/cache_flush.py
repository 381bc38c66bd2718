"""A flush of the caches that takes a fiftieth of the time of TVM's (`native/quick_flush.cc`), for both TVMs.

Of a candidate that is timed with cold caches, most of the time goes into the flushes between its calls. What
it does to the caches is the same.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

TVMS = "cache_flush_cpu_non_first_arg"  # TVM's function that a time evaluator calls before each repeat
NAME = "wmsched.flush_cpu_non_first_arg"
SYMBOL = "wmsched_quick_flush"
INSTRUCTION = "clflushopt"

logger = logging.getLogger("wmsched")


@functools.cache
def library(cpuinfo: str = "/proc/cpuinfo") -> str:
    """Path of the compiled function; "" where this processor or machine has none, and TVM's own serves."""
    from wmsched.toolchain.compile_cache import compile_to, kept

    try:
        if f" {INSTRUCTION} " not in Path(cpuinfo).read_text(encoding="utf-8").replace("\n", " "):
            return ""
        source = Path(__file__).resolve().with_name("quick_flush.cc")
        options = ("-std=c++17", f"-m{INSTRUCTION}", "-fvisibility=hidden")
        path = kept("quick_flush", [source], *options)
        if not path.is_file():
            compile_to(path, _compiler(), [*options, str(source)])
        return str(path)
    except Exception as error:
        logger.info("wmsched: caches are flushed by TVM's function, which is slow: %s", error)
        return ""


def _compiler() -> Any:
    try:
        from tvm.support import cc
    except ImportError:  # AutoScheduler's
        from tvm.contrib import cc
    return cc.get_cc()


def preprocessor(path: str) -> str:
    """In the process that times: the name of the function that flushes, of a `library` or TVM's own."""
    import tvm

    if not path:
        return TVMS
    if tvm.get_global_func(NAME, allow_missing=True) is None:
        try:
            function = tvm.runtime.load_module(path)[SYMBOL]
            if hasattr(tvm, "register_global_func"):
                tvm.register_global_func(NAME, function, override=True)
            else:
                tvm.register_func(NAME, function, override=True)
        except Exception:  # cut short by a full disk, or gone
            return TVMS
    return NAME
