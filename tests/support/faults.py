"""A build and a timing that go wrong for every tenth candidate each; they run in TVM's worker processes.

How many candidates there were before is the length of a file in the folder that FAULTS_FOLDER names.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

FOLDER = "FAULTS_FOLDER"
LONG = 3600.0


def fate(what: str) -> int:
    """0 to 9, in turn; what it was is remembered beside it."""
    with open(Path(os.environ[FOLDER]) / what, "ab") as counter:
        counter.write(b".")
        counter.flush()
        return (counter.tell() - 1) % 10


def build(mod, target, parameters=None):
    """TVM's build; the third of ten raises and the seventh hangs."""
    from wmsched.metaschedule.measure.builder import build as real

    told = fate("builds")
    if told == 2:
        raise RuntimeError("made to fail while it was built")
    if told == 6:
        time.sleep(LONG)
    return real(mod, target, parameters)


def run(module, device, config, arguments):
    """TVM's timing; the second of ten raises, the fifth hangs and the eighth is no number."""
    from tvm.s_tir.meta_schedule.runner.local_runner import default_run_evaluator

    told = fate("runs")
    if told == 1:
        raise RuntimeError("made to fail while it was run")
    if told == 4:
        time.sleep(LONG)
    times = default_run_evaluator(module, device, config, arguments)
    return [float("nan")] if told == 7 else times
