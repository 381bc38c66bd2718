"""`wmsched-data card`: README.md of a dataset, in the form that the Hugging Face hub reads.

The metadata at its head names the Parquet files, so `datasets.load_dataset(DIR, "trajectories")` loads them.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from wmsched.learn.data.dataset import STATES, TRAJECTORIES, WORKLOADS, Dataset

SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
)

MEANING = {
    "workload_id": "name of the rank group: workload key, target and hardware hashed",
    "workload_key": "AutoScheduler's key: md5 of the compute DAG, and shapes",
    "target": "TVM target as in the log",
    "hardware": "TVM's hardware parameters as in the log",
    "network": "where the workload comes from; empty when unknown",
    "desc": "TVM's name of the task",
    "weight": "how often the network has it",
    "flop_ct": "floating point operations; 0 when unknown",
    "stages": "operations, loops and accesses of the compute DAG, JSON; empty when unknown",
    "layout_rewrite": "AutoScheduler's layout rewrite option",
    "s0": "hash of the program before any step; empty when unknown",
    "networks": "all that have the program, where they are more than one",
    "threads": "that its programs ran on, where the hardware parameters do not say it; else 0",
    "source": "log file, `archive!member` in archives",
    "line": "line in it",
    "steps": "transform steps as in the log, JSON",
    "action_texts": "each step in words, references resolved",
    "states": "hash of the program before and after each step; empty where not replayed",
    "costs": "seconds of each timing; 1e10 marks a failure",
    "seconds": "mean of the timings; NaN where measuring failed",
    "error_no": "TVM's error number, 0 for none",
    "all_cost": "seconds that building and measuring took",
    "timestamp": "when, seconds since 1970",
    "disturbed": "whether a noise check found the machine disturbed; null where there was none",
    "hash": "sha256 of the text",
    "text": "TensorIR as TVM prints it",
}


def card(dataset: Dataset, *, name: str, license: str = "unknown") -> str:
    """The text of README.md.

    Parameters
    ----------
    dataset : Dataset
    name : str
        Title.
    license : str
        Of the data; the builder does not know it.
    """
    totals, manifest = dataset.manifest["totals"], dataset.manifest
    rows = [dataset.row(workload_id) for workload_id in dataset.workload_ids]
    targets = Counter((row["target"], tuple(row["hardware"])) for row in rows)
    networks = Counter(row["network"] or "(unknown)" for row in rows)
    machines = "\n".join(
        f"| `{_cell(target)}` | {list(hardware)} | {count} |" for (target, hardware), count in targets.items()
    )
    kinds = "\n".join(f"| {kind} | {number:,} |" for kind, number in sorted(totals["errors_by_kind"].items()))
    counted = "\n".join(
        f"| {what} | {totals[what]:,} |" for what in sorted(totals) if what != "errors_by_kind"
    )
    made = manifest.get("made")
    made_by = f"`{json.dumps(made, sort_keys=True)}`" if made else "`wmsched-data build` from tuning logs"
    shown = ", ".join(f"{_cell(network)} ({count})" for network, count in networks.most_common(40))
    more = f", and {len(networks) - 40} others" if len(networks) > 40 else ""
    keys = len({row["workload_key"] for row in rows})
    libraries = ", ".join(f"{key} {value}" for key, value in sorted(manifest.get("libraries", {}).items()))
    return f"""{_metadata(name, license, totals["records"])}
# {name}

Schedules of tensor programs, each with the steps that make it, the program after each step, and its measured
run time. {totals["records"]:,} records of {keys:,} programs, measured on {len(targets)} kinds of machine
({len(rows):,} rank groups: times compare within a group only). Made for `wmsched train`.

## Machines

| target | hardware parameters | rank groups |
|---|---|---|
{machines}

## Networks

{shown}{more}.

## Counts

| what | number |
|---|---|
{counted}

What measuring ended in:

| kind | records |
|---|---|
{kinds}

## Structure

`workloads.parquet`, a row a rank group:

{_columns(WORKLOADS)}

`trajectories/<workload_id>.parquet`, a row a record:

{_columns(TRAJECTORIES)}

`states/<workload_id>.parquet`, each distinct program once:

{_columns(STATES)}

`manifest.json` has format version ({dataset.version}), sources with their sha256, totals, and checksums of
all files; `problems.txt` each line of the logs that was left out, with the reason.

## Loading

```python
from wmsched.learn.data.dataset import Dataset                        # or, without wmsched:
from datasets import load_dataset                          # pip install datasets
records = load_dataset("{name}", "trajectories", split="train")
```

`train` is only the name the loader gives; to split without leaks, `wmsched-data split`.

## Origin

Made by {made_by} from {len(manifest["sources"]):,} logs.
Libraries: {libraries}.

## Limits

Times hold for the machines above, as they were then. Records whose measurement failed are kept (`seconds`
is NaN).
{totals.get("replayed", 0):,} records have their states; the others have steps and times. Licence of the data:
{license}.
"""


def _metadata(name: str, license: str, records: int) -> str:
    size = next((label for limit, label in SIZES if records < limit), "10M<n<100M")
    configs = "".join(
        f"- config_name: {config}\n  data_files: {json.dumps(files)}\n{extra}"
        for config, files, extra in (
            ("trajectories", "trajectories/*.parquet", "  default: true\n"),
            ("workloads", "workloads.parquet", ""),
            ("states", "states/*.parquet", ""),
        )
    )
    return (
        f"---\npretty_name: {json.dumps(name)}\nlicense: {json.dumps(license)}\n"
        f"tags: [tvm, auto-scheduler, tensor-programs, cost-model]\nsize_categories: [{json.dumps(size)}]\n"
        f"configs:\n{configs}---\n"
    )


def _columns(schema: Any) -> str:
    lines = [f"| `{field.name}` | {field.type} | {MEANING[field.name]} |" for field in schema]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *lines])


def _cell(text: str) -> str:
    """Text of a log in a table: labels may hold anything."""
    return "".join(c if c.isprintable() and c not in "|`<>" else "?" for c in text[:200])
