"""`python -m benchmarks.models.export`: extract the seven models' tasks and write
wmsched/zoo/benchmark.json.gz.

Run it with AutoScheduler's TVM first on PYTHONPATH. The file holds the compute graphs themselves (TVM's
JSON), so tuning and benchmarking need neither Relay nor this module afterwards; exporting again gives the
same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.suites import REPRESENTATIVES, Representative
from wmsched.base.files import atomic_open

if TYPE_CHECKING:
    from benchmarks.models import networks

Row = dict[str, Any]

DEFAULT_OUT = Path(__file__).parents[2] / "wmsched" / "zoo" / "benchmark.json.gz"
# The graphs do not depend on the CPU; whoever tunes names a target of their own.
TARGET = "llvm -keys=cpu -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu -num-cores=2"


def operators(desc: str) -> str:
    """The operators in a function's name: "vm_mod_fused_nn_conv2d_add_nn_relu_5" -> "conv2d_add_relu"."""
    name = desc.split(",")[0].removeprefix("vm_mod_fused_")
    return re.sub(r"(?<!\d)_\d+$", "", name).replace("nn_", "")


def shapes(workload_key: str) -> tuple[tuple[int, ...], ...]:
    """The tensor shapes in a workload key of TVM 0.10 or later, `[md5, shape, ...]`."""
    return tuple(tuple(shape) for shape in json.loads(workload_key)[1:])


def extract(network: networks.Network) -> list[Row]:
    """The network's tasks as rows, heaviest (occurrences x floating-point operations) first."""
    from tvm import auto_scheduler, ir
    from tvm.target import Target

    from benchmarks.models import networks
    from wmsched.ansor.compute_dag import PRE_TRANSFORMED, layout_rewrite
    from wmsched.ansor.dense_layout import mend, upstream_key

    mend()
    module, params = networks.build(network)
    # a CPU's hardware parameters: TVM would ask the machine it runs on for the number of cores
    hardware = auto_scheduler.HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)
    tasks, weights = auto_scheduler.extract_tasks(
        module["main"], params, Target(TARGET), hardware_params=hardware
    )
    rows = []
    for task, weight in zip(tasks, weights, strict=True):
        names = sorted(task.desc.split(","))
        rows.append(
            {
                "network": network.name,
                "model": network.name,
                "weight": int(weight),
                "desc": ",".join(names),
                "ops": operators(names[0]),
                "workload_key": task.workload_key,
                "upstream_key": upstream_key(task.compute_dag),
                "target": str(task.target),
                "flop_ct": float(task.compute_dag.flop_ct),
                "log": None,
                "layout_rewrite": layout_rewrite(PRE_TRANSFORMED, task.compute_dag, task.target),
                "tensors": json.loads(ir.save_json(task.compute_dag.tensors)),
            }
        )
    # the order of extraction is TVM's own affair; this one can be relied upon
    rows.sort(key=lambda row: (-row["weight"] * row["flop_ct"], row["workload_key"]))
    for index, row in enumerate(rows):
        row["index"] = index
        row["name"] = f"{network.name}/{index}"
    return rows


def label(rows: list[Row], representatives: tuple[Representative, ...] = REPRESENTATIVES) -> None:
    """Give each representative's row its `type`, the others "". ValueError where the suite is out of date."""
    for row in rows:
        row["type"] = ""
    for entry in representatives:
        found = [
            row
            for row in rows
            if row["model"] == entry.model
            and row["ops"] == entry.ops
            and shapes(row["workload_key"]) == entry.shapes
        ]
        if len(found) != 1:
            raise ValueError(
                f"suites.py: {entry.type} ({entry.model}, {entry.ops}) matches {len(found)} tasks, not one; "
                "correct its ops and shapes from this command's listing (--list)"
            )
        if found[0]["index"] != entry.index:
            raise ValueError(f"suites.py: {entry.type} is {found[0]['name']}, not index {entry.index}")
        found[0]["type"] = entry.type


def write(rows: list[Row], out: Path) -> None:
    """Write the rows as gzipped JSON without a time stamp, so that equal rows are equal bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows, separators=(",", ":")).encode()
    with atomic_open(out) as file:
        file.write(gzip.compress(text, compresslevel=9, mtime=0))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.export", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where the tasks go (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print every task before anything is checked")
    options = parser.parse_args(argv)

    from benchmarks.models import networks  # Relay

    rows: list[Row] = []
    counts = Table("model", "input", "tasks here", "paper", title="Tasks by model")
    for network in networks.NETWORKS:
        found = extract(network)
        counts.add_row(network.title, str(list(network.shape)), str(len(found)), str(network.paper_count))
        rows += found
    counts.add_row("all", "", str(len(rows)), str(sum(n.paper_count for n in networks.NETWORKS)))
    for number, row in enumerate(rows):
        row["id"] = number
    console = Console()
    console.print(counts)
    if options.list:
        for row in rows:
            sizes = " ".join(str(list(shape)) for shape in shapes(row["workload_key"]))
            console.print(
                f"{row['name']} x{row['weight']} {row['ops']} {sizes}", soft_wrap=True, markup=False
            )
    label(rows)
    write(rows, options.out)
    size = options.out.stat().st_size / 1024
    console.print(
        f"{len(rows)} tasks, {len(REPRESENTATIVES)} of them representatives: {options.out} ({size:.0f} KiB)"
    )


if __name__ == "__main__":
    main()
