"""AutoScheduler's candidates built into a parcel, to be timed on another machine (needs its TVM).

    python -m benchmarks.run --parcel PARCEL --target "llvm ... -num-cores=16" \\
        --methods ansor-script,wmsched-script --bundle x86-avx512 --out PROPOSED
    python data_builder/offline_measure/time_parcel.py PARCEL --kind ansor --again 12       # there, with
    TVM_NUM_THREADS python -m benchmarks.tune.meta.deferred PROPOSED --parcel PARCEL --out RESULTS

As with MetaSchedule's (`benchmarks.tune.meta.deferred`): the search is one round, and what the runner
answers is that nobody has timed the program yet. There TVM's runtime is needed, numpy, and as many cores as
the target names; here only what the search takes.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.tune.meta import deferred
from data_builder.offline_measure.manifest import ParcelList
from wmsched.base.cores import usable_cores

RUN = "auto_scheduler.local_runner.run"  # the function that TVM's local runner calls
UNKNOWN = 1.0  # seconds, of a program that is yet to be timed: the same for all


def cores(target: str) -> int:
    """How many cores a target names; 0 where it names none. TVM would take those of this machine."""
    found = re.search(r"-num-cores=(\d+)", target)
    return int(found[1]) if found else 0


class Parcel:
    """Takes the programs of AutoScheduler's local builder.

    Parameters
    ----------
    folder : Path
        Of the parcel; made if need be.

    Attributes
    ----------
    proposed : list of dict
        Each candidate's library, its "key" ("" for one that could not be built), and its "record", which
        has no time yet.
    """

    def __init__(self, folder: Path) -> None:
        self.listed = ParcelList(folder)
        self.proposed: list[dict[str, Any]] = []

    def take(self, inputs: Any, built: Any) -> list[Any]:
        """Put what was built into the parcel; results that say `UNKNOWN`, for TVM wants a time of each."""
        from tvm.auto_scheduler.measure import MeasureErrorNo, MeasureResult
        from tvm.auto_scheduler.measure_record import dump_record_to_string

        with ThreadPoolExecutor(usable_cores()) as pool:
            keys = list(pool.map(self._keep, built))
        answers = []
        for given, result, key in zip(inputs, built, keys, strict=True):
            error = MeasureErrorNo.NO_ERROR if key else int(result.error_no)
            answer = MeasureResult([UNKNOWN], error, result.error_msg, result.time_cost, time.time())
            self.proposed.append({"key": key, "record": dump_record_to_string(given, answer).strip()})
            answers.append(answer)
            if key and key not in self.listed:
                arguments = [["TENSOR", str(x.dtype), [int(n) for n in x.shape]] for x in result.args]
                self.listed.add(key, arguments)
        return answers

    def _keep(self, result: Any) -> str:
        """Link what was built; its library's key, "" where there is none."""
        from tvm.contrib import cc, tar

        if int(result.error_no) != 0:
            return ""
        with tempfile.TemporaryDirectory(prefix="wmsched-parcel-") as folder:
            tar.untar(result.filename, folder)
            objects = sorted(str(path) for path in Path(folder).glob("*.o"))
            code = b"".join(Path(path).read_bytes() for path in objects) + str(list(result.args)).encode()
            key = hashlib.blake2b(code, digest_size=12).hexdigest()
            library = self.listed.library(key)
            if not library.exists():
                linked = f"{folder}/program.so"
                cc.create_shared(linked, objects, options=["-s"])
                shutil.copy(linked, partial := library.with_name(Path(folder).name))
                partial.replace(library)
        return key

    def outcome(self, task: str, budget: int, told: dict[str, Any]) -> dict[str, Any]:
        """The result line's fields of a search whose programs are in the parcel.

        A scheduler whose first round was short makes a whole one next: what is beyond the budget is
        left out.
        """
        self.proposed = self.proposed[:budget]
        return deferred.outcome(self.proposed, self.listed.folder, task, told)


@contextmanager
def parcel(folder: str) -> Iterator[Parcel | None]:
    """Within, local runners time nothing, and what they are given is put into the parcel; "": as ever."""
    if not folder:
        yield None
        return
    import tvm

    before, taken = tvm.get_global_func(RUN), Parcel(Path(folder))
    tvm.register_func(RUN, lambda inputs, built, *more: taken.take(inputs, built), override=True)
    try:
        yield taken
    finally:
        tvm.register_func(RUN, before, override=True)
