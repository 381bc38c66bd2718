"""`python -m data_builder.graphs.child WHAT NAME OUT NUMBER TARGET`: one step of a graph, in its own process.

A library that this process has loaded stays loaded, and some hundred of them are too many; a program that
ends the process ends no other graph. WHAT is "build", NUMBER configurations, or "time", NUMBER rounds.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Build or time a graph; a line of standard output for each configuration that is built."""
    what, name, out, number, text = argv
    from wmsched.base.cores import THREADS, leave_unbound, model_threads
    from wmsched.base.errors import WmschedError
    from wmsched.toolchain.resolve import meta_schedule_tvm

    leave_unbound(os.environ)
    os.environ.setdefault(THREADS, str(model_threads(os.environ)))
    importlib.import_module("xgboost")  # before TVM, as everywhere
    meta_schedule_tvm()
    from data_builder.graphs.job import Job
    from wmsched.toolchain.targets import meta_target

    job, target = Job(Path(out), name), meta_target(text or None)
    try:
        if what == "build":
            from data_builder.graphs.build import build

            build(job, target, int(number), on_configuration=lambda kind: print(kind, flush=True))
        else:
            from data_builder.graphs.timing import timed

            job.add(timed(job, target, rounds=int(number)))
    except WmschedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
