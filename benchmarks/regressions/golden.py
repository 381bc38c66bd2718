"""`python -m benchmarks.regressions.golden --out FILE`: do shipped bundles score as before, to the last bit.

`tests/golden/scores` holds three small datasets and, in `margins.json`, the margins in hex as at commit
e1e6f71, before modules moved into rooms. A line for each bundle: kind "golden", `bundle`, `margins`
(compared) and `equal` (of these). `--write` writes `margins.json` anew: only when a bundle or a feature
changes on purpose.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.plan import Results
from wmsched.base.files import atomic_open

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "scores"
MARGINS = GOLDEN / "margins.json"
DATA = {
    "x86-avx512": "x86-sample",
    "x86-avx2": "x86-sample",
    "x86-avx512-paper": "x86-sample",
    "x86-meta": "meta-zen4",
    "cuda-meta": "meta-h200",
}
PER_WORKLOAD = 24

Margins = dict[str, list[str]]


def margins(bundle: str) -> Margins:
    """Return the margins of the first records of each workload, in hex, by workload id."""
    from wmsched.learn.data.dataset import Dataset
    from wmsched.model.world_model import WorldModel

    model = WorldModel.from_pretrained(bundle)
    dataset = Dataset(GOLDEN / DATA[bundle])
    found = {}
    for workload_id in dataset.workload_ids:
        scorer = model.task(dataset.workload(workload_id), dataset.initial(workload_id))
        steps = [trajectory.steps for trajectory in dataset.trajectories(workload_id)[:PER_WORKLOAD]]
        found[workload_id] = [float(margin).hex() for margin in scorer.margins(steps)]
    return found


def before() -> dict[str, Any]:
    """Return the golden file: the `processor` that made it, and `margins` by bundle and data."""
    golden: dict[str, Any] = json.loads(MARGINS.read_text(encoding="utf-8"))
    return golden


def processor() -> str:
    """Return the name of a kind of processor: PyTorch's sums depend on its vector instructions."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:12]


def count_equal(now: Mapping[str, Sequence[str]], golden: Mapping[str, Sequence[str]]) -> tuple[int, int]:
    """Return how many margins are compared and how many of them are equal.

    >>> count_equal({"a": ["0x1p+0", "0x1p+1"]}, {"a": ["0x1p+0", "0x1p+2"], "b": ["0x1p+0"]})
    (3, 1)
    """
    pairs = [
        (now[key][place] if place < len(now.get(key, ())) else None, value)
        for key, values in golden.items()
        for place, value in enumerate(values)
    ]
    return len(pairs), sum(ours == theirs for ours, theirs in pairs)


def bundles(lines: Sequence[Mapping[str, Any]]) -> int:
    """Return how many bundles have all margins equal in their last line. ValueError without a line."""
    last = {line["bundle"]: line for line in lines if line["kind"] == "golden"}
    if not last:
        raise ValueError("no bundle is in its lines")
    return sum(line["equal"] == line["margins"] > 0 for line in last.values())


def main(argv: list[str] | None = None) -> int:
    """Compare, or write the golden file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regressions.golden", description=(__doc__ or "").split("\n\n")[1]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="results file; lines are appended")
    what.add_argument("--write", action="store_true", help=f"write {MARGINS.name} anew")
    options = parser.parse_args(argv)
    if options.write:
        every = {f"{bundle}/{data}": margins(bundle) for bundle, data in DATA.items()}
        with atomic_open(MARGINS) as file:
            file.write(json.dumps({"processor": processor(), "margins": every}, indent=0).encode() + b"\n")
        return 0
    console, results, golden = Console(stderr=True), Results(options.out), before()
    same = golden["processor"] == processor()
    for bundle, data in DATA.items():
        compared, equal = count_equal(margins(bundle), golden["margins"][f"{bundle}/{data}"])
        line = {"bundle": bundle, "margins": compared, "equal": equal, "same_processor": same}
        results.append({"kind": "golden", **line, **machine.describe()})
        console.print(f"{bundle}: {equal} of {compared} margins are equal", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
