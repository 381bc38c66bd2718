"""`python -m benchmarks.studies.data_rates`: how fast the dataset builder is here, and how much memory it
takes.

    python -m benchmarks.studies.data_rates parse                 # lines a second and core, from bytes to
    records python -m benchmarks.studies.data_rates scan                  # and with reading and grouping on
    disk python -m benchmarks.studies.data_rates replay --jobs 1,2     # states a second (needs
    AutoScheduler's TVM) python -m benchmarks.studies.data_rates memory --lines 10000,1000000 --jobs 2   #
    all processes of a build python -m benchmarks.studies.data_rates rank --lines 100000   # boosting G from
    rows on disk, one core

Lines are those of the logs in `--logs`, repeated with other times where more are asked for. Each figure is
one JSON line with the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import machine
from data_builder.read.log_paths import expand
from data_builder.read.log_reader import LogReader
from wmsched.schedules.steps import parse_record

SAMPLES = Path(__file__).resolve().parents[2] / "data_builder" / "samples"
REPEATS = 3  # the best counts: whatever else runs only ever slows down


def read_lines(folder: Path) -> list[bytes]:
    """All lines of the logs in `folder`."""
    found = [line.data for log in expand([folder]).logs for line in LogReader(log) if not line.problem]
    if not found:
        raise SystemExit(f"no logs in {folder}")
    return found


def many(lines: list[bytes], count: int) -> Iterator[bytes]:
    """`count` lines, each with a time stamp of its own, so that none is a repetition."""
    for number in range(count):
        head, _, _ = lines[number % len(lines)].rpartition(b'"r"')
        yield head + b'"r": [[%.7f], 0, 0.5, %d], "v": "v0.6"}' % (1e-4 + number * 1e-9, number + 1)


def parse(lines: list[bytes]) -> dict[str, float]:
    """CPU seconds from bytes to checked records."""
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for line in lines:
            parse_record(line)
        times.append(time.process_time() - begin)
    size = sum(map(len, lines)) / len(lines)
    return {"lines_per_second": round(len(lines) / min(times)), "bytes_per_line": round(size)}


def scan(lines: list[bytes], count: int) -> dict[str, float]:
    """CPU seconds of a build's first pass: read, check, group by workload on disk."""
    from data_builder.read.spool import scan as run

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json.gz"
        with gzip.open(log, "wb", compresslevel=1) as stream:
            stream.writelines(line + b"\n" for line in many(lines, count))
        begin = time.process_time()
        found = run((str(log),), Path(folder) / "scratch", on_problem=print)
        seconds = time.process_time() - begin
    return {"lines": found["sources"][0]["lines"], "lines_per_second": round(count / seconds)}


def replay(logs: Path, workloads: Path, jobs: int) -> dict[str, float]:
    """A whole build with so many workers: wall seconds, and CPU seconds, which load changes less."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ds"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        command = [sys.executable, "-m", "data_builder.cli.main", "build", str(logs), "--out", str(out)]
        options = ["--workloads", str(workloads), "--states-per-workload", "12", "--jobs", str(jobs)]
        subprocess.run([*command, *options], check=True, capture_output=True)
        seconds = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        totals = json.loads((out / "manifest.json").read_text())["totals"]
    return {
        "jobs": jobs,
        "states": totals["states"],
        "records_with_states": totals["replayed"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "states_per_second": round(totals["states"] / seconds, 1),
        "states_per_cpu_second": round(totals["states"] / cpu, 1),
    }


def memory(lines: list[bytes], count: int, workloads: Path | None, jobs: int) -> dict[str, float]:
    """A build's peak resident megabytes: of its largest process, and of all its processes together.

    Each process counts with its own highest mark, and what they share counts for each of them, so the sum is
    never too small.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json.gz"
        with gzip.open(log, "wb", compresslevel=1) as stream:
            stream.writelines(line + b"\n" for line in many(lines, count))
        out = Path(folder) / "ds"
        command = [sys.executable, "-m", "data_builder.cli.main", "build", str(log), "--out", str(out)]
        command += ["--jobs", str(jobs), *(["--workloads", str(workloads)] if workloads else [])]
        with open(Path(folder) / "said", "w+b") as said:
            begin = time.monotonic()
            process = subprocess.Popen(command, stdout=said, stderr=said)
            largest = together = 0
            while process.poll() is None:
                peaks = list(_peaks(process.pid))
                largest, together = max([largest, *peaks]), max(together, sum(peaks))
                time.sleep(0.1)
            seconds = time.monotonic() - begin
            if process.returncode:
                said.seek(0)
                raise SystemExit(said.read().decode(errors="replace")[-2000:])
        totals = json.loads((out / "manifest.json").read_text())["totals"]
    return {
        "lines": totals["lines"],
        "records": totals["records"],
        "workloads": totals["workloads"],
        "states": totals["states"],
        "jobs": jobs,
        "peak_mb": round(largest / 1024),
        "together_mb": round(together / 1024),
        "seconds": round(seconds),
    }


def rank(count: int) -> dict[str, float]:
    """CPU seconds of boosting G from rows on disk, a million records: its matrix, and a tree of each kind.

    The rows are random, of as many columns as the shipped bundle's.
    """
    import numpy as np

    from wmsched.model.bundles import find
    from wmsched.model.external_memory import stored
    from wmsched.model.groups import RankGroup
    from wmsched.model.ranker import Ranker, RankerConfig

    columns = len(json.loads((find("x86-avx512") / "config.json").read_text())["features"])
    rng = np.random.default_rng(0)
    result: dict[str, float] = {"records": count, "columns": columns}
    with tempfile.TemporaryDirectory() as folder:
        groups = []
        for number in range(count // 1000):
            rows = rng.integers(0, 99, (1000, columns)).astype(np.float32)
            seconds = np.exp(rows[:, 0] / 99 + rng.normal(size=1000) / 9)
            groups.append(stored(RankGroup(str(number), rows, seconds), Path(folder) / f"{number}.npy"))
        for objective in RankerConfig().objectives:
            times = []
            for rounds in (1, 11):
                begin = time.process_time()
                Ranker.fit(groups, RankerConfig(objective=objective, rounds=rounds, threads=1))
                times.append(1e6 / count * (time.process_time() - begin))
            result[f"{objective}: seconds a tree"] = round((times[1] - times[0]) / 10, 2)
            result[f"{objective}: seconds besides"] = round(times[0], 1)
    return result


def _peaks(root: int) -> Iterator[int]:
    """Highest resident kilobytes so far of a process and of all below it that are alive (Linux)."""
    waiting = [root]
    while waiting:
        process = waiting.pop()
        try:
            status = Path(f"/proc/{process}/status").read_text()
            for task in Path(f"/proc/{process}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # it ended just now
            continue
        yield from (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def main() -> None:
    """Print one JSON line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("parse", "scan", "replay", "memory", "rank"))
    parser.add_argument("--logs", type=Path, default=SAMPLES / "measure_records")
    parser.add_argument(
        "--workloads", type=Path, help="for replay, and for memory with states; replay: the sample's"
    )
    parser.add_argument("--lines", default="100000", help="lines, for scan and memory; records, for rank")
    parser.add_argument("--jobs", default="1,2", help="workers, for replay and memory")
    options = parser.parse_args()
    counts, jobs = ([int(part) for part in listed.split(",")] for listed in (options.lines, options.jobs))
    about = {"machine": machine.describe(), "what": options.what}
    for result in _results(options, counts, jobs):
        print(json.dumps({**about, **result}), flush=True)


def _results(options: argparse.Namespace, counts: list[int], jobs: list[int]) -> Iterator[dict[str, float]]:
    if options.what == "replay":
        workloads = options.workloads or SAMPLES / "workloads.json.gz"
        yield from _scaled([replay(options.logs, workloads, number) for number in jobs])
        return
    if options.what == "rank":
        yield from map(rank, counts)
        return
    lines = read_lines(options.logs)
    if options.what == "parse":
        yield parse(lines)
    elif options.what == "scan":
        yield from (scan(lines, count) for count in counts)
    else:
        yield from (memory(lines, count, options.workloads, number) for number in jobs for count in counts)


def _scaled(results: list[dict[str, float]]) -> Iterator[dict[str, float]]:
    """Each result, with how many times as fast as the first it was."""
    for result in results:
        yield {**result, "times_first": round(results[0]["seconds"] / result["seconds"], 2)}


if __name__ == "__main__":
    main()
