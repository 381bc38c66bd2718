"""`python -m benchmarks.data_rates`: how fast the dataset builder is here, and how much memory it takes.

    python -m benchmarks.data_rates parse                 # lines a second and core, from bytes to records
    python -m benchmarks.data_rates scan                  # and with reading and grouping on disk
    python -m benchmarks.data_rates replay --jobs 1,2     # states a second (needs AutoScheduler's TVM)
    python -m benchmarks.data_rates memory --lines 10000,1000000

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
from data_builder.tenset import LogReader, expand
from wmsched.codecs.ansor import parse_record

SAMPLES = Path(__file__).resolve().parents[1] / "data_builder" / "samples"
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
    from data_builder.spool import scan as run

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
        command = [sys.executable, "-m", "data_builder.cli", "build", str(logs), "--out", str(out)]
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


def memory(lines: list[bytes], count: int) -> dict[str, float]:
    """Peak resident megabytes of a build without states, of its largest process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json.gz"
        with gzip.open(log, "wb", compresslevel=1) as stream:
            stream.writelines(line + b"\n" for line in many(lines, count))
        code = (
            "import resource, sys; from pathlib import Path\n"
            "from data_builder.build import BuildOptions, build\n"
            "from data_builder.console import ConsoleReport\n"
            "def main():\n"
            "    manifest = build([sys.argv[1]], Path(sys.argv[2]), BuildOptions(jobs=1), ConsoleReport())\n"
            "    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)\n"
            "    peak = max(resource.getrusage(one).ru_maxrss for one in who) / 1024\n"
            "    print(manifest['totals']['records'], round(peak))\n"
            "if __name__ == '__main__':\n"
            "    main()\n"
        )
        script = Path(folder) / "peak.py"
        script.write_text(code)
        run = subprocess.run(
            [sys.executable, str(script), str(log), str(Path(folder) / "ds")],
            check=True, capture_output=True, text=True, env=_with_path(),
        )  # fmt: skip
    records, peak = run.stdout.split()[-2:]
    return {"lines": count, "records": int(records), "peak_mb": int(peak)}


def _with_path() -> dict[str, str]:
    import os

    root = str(Path(__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(":")}


def main() -> None:
    """Print one JSON line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("parse", "scan", "replay", "memory"))
    parser.add_argument("--logs", type=Path, default=SAMPLES / "measure_records")
    parser.add_argument("--workloads", type=Path, default=SAMPLES / "workloads.json.gz")
    parser.add_argument("--lines", default="100000", help="lines, for scan and memory")
    parser.add_argument("--jobs", default="1,2", help="workers, for replay")
    options = parser.parse_args()
    counts = [int(part) for part in options.lines.split(",")]
    about = {"machine": machine.describe(), "what": options.what}
    if options.what == "replay":
        results = [replay(options.logs, options.workloads, int(jobs)) for jobs in options.jobs.split(",")]
    else:
        lines = read_lines(options.logs)
        if options.what == "parse":
            results = [parse(lines)]
        else:
            results = [(scan if options.what == "scan" else memory)(lines, count) for count in counts]
    for result in results:
        print(json.dumps({**about, **result}))


if __name__ == "__main__":
    main()
