"""One report of a tuned folder: load, look, time, measure the machine, and gather."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wmsched.base.cores import requested_threads, tvm_threads
from wmsched.measure import roofline
from wmsched.report.compare import compare
from wmsched.report.gather import gather
from wmsched.report.profiler import profile
from wmsched.report.source import functions_of
from wmsched.tune.tuned_model import TunedModel

__all__ = ["make_report"]


def make_report(
    folder: Path, *, seconds: float = 5.0, compared: bool = False, tell: Callable[[str], None] = print
) -> dict[str, Any]:
    """Return all numbers of a folder's report (`wmsched.report.gather`).

    Parameters
    ----------
    seconds : float
        Of runs of the model, about.
    compared : bool
        Whether other runtimes are timed, too.
    tell : callable (text)
        Shows the user a line.

    Raises
    ------
    WmschedError
        The folder holds no finished model, or it cannot be loaded here.
    """
    model = TunedModel(folder)
    functions, why = functions_of(folder, tell)
    tell(f"running {model.report['model']} for {seconds:g} s")
    found = profile(model, seconds=seconds, functions=functions)
    threads = requested_threads(os.environ) or tvm_threads(os.environ)
    machine = roofline.Roofline(threads=threads) if model.sync is not None else roofline.measure(threads)
    others = compare(model, tell) if compared else None
    return gather(folder, found, machine, why_unknown=why, compared=others)
