"""Writer of the representatives' workload keys in MetaSchedule's datasets. Needs MetaSchedule's TVM.

`python -m benchmarks.tune.meta.keys`, whenever `benchmarks.models.export` has other tasks. By these keys a
bundle that has seen what `meta-` methods are measured on is refused (`benchmarks.leak`), and
`wmsched-data build --exclude zoo` leaves it out.
"""

from __future__ import annotations

import json

from benchmarks import suites
from benchmarks.tune.meta import workloads
from wmsched import zoo
from wmsched.base.files import atomic_open
from wmsched.metaschedule.workload import workload_of


def keys() -> dict[str, str]:
    """Workload key by the representative's type."""
    return {kind: workload_of(workloads.module(kind), "").key for kind in suites.BY_TYPE}


def main() -> None:
    with atomic_open(zoo.TENSORIR) as file:
        file.write(json.dumps(keys(), indent=1).encode() + b"\n")
    print(f"{len(suites.BY_TYPE)} keys: {zoo.TENSORIR}")


if __name__ == "__main__":
    main()
