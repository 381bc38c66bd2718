"""`python -m benchmarks.runtimes.busy --folder DIR --out FILE`: tuned models beside busy programs.

Each model of `benchmarks.runtimes.models` is called alone and beside 1, 2 and 4 programs that spin, by
our parallel launch, by TVM's own pool (alone) and by onnxruntime (where a Python that has it is named): each
in a process of its own, in turns. One JSON line a model, runtime and number of busy programs: kind "busy",
`median` and `p99` in microseconds. Some are then called by four processes at once, of either runtime, and by
four copies of a process that has loaded the model: kind "served". Then, in so many new processes, what a call
by `wmsched.load` takes over the bare virtual machine's: kind "call_overhead". FILE is gone on with; what it
has is not measured again. Then its table. It takes 15 minutes on two cores once models are tuned.

Models are exported and tuned into DIR where it lacks them, which needs onnxscript. Nothing else should run:
what does is said.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results

KIND, SERVED, OVERHEAD = "busy", "served", "call_overhead"
OURS, POOL, STOCK, ORT = "ours", "tvm-pool", "tvm", "onnxruntime"
FOREIGN = (ORT, "openvino")  # run by a Python of their own
CHILD = Path(__file__).with_name("child.py")
SPIN = "while True: pass"
LEVELS = (0, 1, 2, 4)
MODELS = ("resnet50", "mobilenetv2", "bert-base", "efficientnet-b0", "lstm-2x128")
SERVERS = ("resnet50", "mobilenetv2", "lstm-2x128")  # models that are served
WORKERS = 4  # that serve at once
APART, FORKED = "processes", "forked"  # started each by itself, or as copies of one that has loaded the model
ROUNDS, SECONDS = 5, 2.4  # turns of a runtime at a number of busy programs, and their length
REST = 0.3  # seconds after which TVM's idle threads sleep
PROCESSES = 20
MINUTES = {
    "perceptron": 0.5,
    "lstm-2x128": 2.0,
    "lstm": 2.0,
    "mobilenetv2": 5.0,
    "resnet50": 10.0,
    "bert-base": 10.0,
    "efficientnet-b0": 5.0,
}
LIMIT_SECONDS = 300.0


class Child:
    """A runtime with a model, in a process of its own, which does nothing until it is asked."""

    def __init__(
        self, runtime: str, path: Path, python: str, script: Path = CHILD, *, workers: int = 0
    ) -> None:
        environment = dict(os.environ, WMSCHED_PARALLEL_LAUNCH="0" if runtime == POOL else "1")
        if runtime == STOCK:
            environment.setdefault("TVM_NUM_THREADS", str(os.cpu_count()))
        self.process = subprocess.Popen(
            [
                python if runtime in FOREIGN else sys.executable,
                str(script),
                runtime,
                str(path),
                *([str(workers)] if workers else []),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer("ready")

    def latencies(self, seconds: float) -> list[float]:
        """Microseconds of the calls of a spell."""
        found: list[float] = self.ask(seconds)
        return found

    def ask(self, what: Any) -> Any:
        """Its answer to a line, both JSON."""
        self.begin(what)
        return self.end()

    def begin(self, what: Any) -> None:
        """Hand it a line, JSON, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(what)}\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        """Its answer to that, of all its workers where there are some."""
        return json.loads(self._answer())

    def _answer(self, wanted: str = "") -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line or (wanted and line != wanted):
            raise RuntimeError(f"{self.process.args!r} said {line!r}, and ended with {self.process.wait(10)}")
        return line

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many programs spin meanwhile."""
    programs = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        time.sleep(REST)
        yield
    finally:
        for one in programs:
            one.kill()
            one.wait()


def prepare(folder: Path, model: str) -> None:
    """Export and tune a model into `folder`, unless it is there. Raises CalledProcessError."""
    from benchmarks.runtimes.models import export

    program, _ = export(model, folder)
    if not (folder / "tuned" / model / "report.json").is_file():
        command = [sys.executable, "-m", "wmsched", "tune", str(program), "--resume", "--out"]
        command += [str(folder / "tuned" / model), "--minutes", str(MINUTES[model])]
        subprocess.run(command, check=True)


def measure(
    folder: Path,
    model: str,
    runtimes: Sequence[str],
    levels: Sequence[int],
    python: str,
    console: Console,
    turns: tuple[int, float] = (ROUNDS, SECONDS),
) -> Iterator[dict[str, Any]]:
    """Lines of a model, all runtimes of a number of busy programs in turns."""
    paths = {ORT: folder / f"{model}.onnx"}
    children = {
        runtime: Child(runtime, paths.get(runtime, folder / "tuned" / model), python) for runtime in runtimes
    }
    try:
        for level in levels:
            now = [one for one in runtimes if is_measured(one, level)]
            times: dict[str, list[list[float]]] = {runtime: [] for runtime in now}
            others = os.getloadavg()[0]
            for _ in range(turns[0]):
                with busy(level):
                    for runtime in now:
                        times[runtime].append(children[runtime].latencies(turns[1]))
                        time.sleep(REST)
            for runtime in now:
                calls = [one for turn in times[runtime] for one in turn]
                line = {
                    "kind": KIND, "model": model, "runtime": runtime, "busy": level, "calls": len(calls),
                    "median": round(statistics.median(calls), 2),
                    "p99": round(quantile(calls, 0.99), 2),
                    "turns": [round(statistics.median(turn), 2) for turn in times[runtime]],
                    "load_before": round(others, 2),
                }  # fmt: skip
                console.print(f"{model}, {level} busy, {runtime}: {line['median']} us, p99 {line['p99']}")
                yield line
    finally:
        for child in children.values():
            child.close()


def is_measured(runtime: str, level: int) -> bool:
    """Whether a runtime is called beside so many programs: in TVM's pool one call may take a second."""
    return not level or runtime != POOL


def serve(
    folder: Path,
    model: str,
    runtime: str,
    way: str,
    python: str,
    turns: tuple[int, float] = (ROUNDS, SECONDS),
) -> dict[str, Any]:
    """A line of a model that `WORKERS` processes call at once, for as long as all turns of `measure`."""
    path = folder / f"{model}.onnx" if runtime == ORT else folder / "tuned" / model
    forked = way == FORKED
    children: list[Child] = []
    try:
        for _ in range(1 if forked else WORKERS):
            children.append(Child(runtime, path, python, workers=WORKERS if forked else 0))
        calls = []
        for _ in range(turns[0]):
            for child in children:
                child.begin(turns[1])
            calls += [one for child in children for one in child.end()]
            time.sleep(REST)
    finally:
        for child in children:
            child.close()
    return {
        "kind": SERVED, "model": model, "runtime": runtime, "way": way, "processes": WORKERS,
        "calls": len(calls), "median": round(statistics.median(calls), 2),
        "p99": round(quantile(calls, 0.99), 2),
    }  # fmt: skip


def quantile(values: Sequence[float], part: float) -> float:
    """The value that so much of all are at most, between the two nearest: of few the largest is chance."""
    ordered, place = sorted(values), part * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def call_overhead(folder: Path, model: str) -> dict[str, Any]:
    """A line of what a new process finds. Raises CalledProcessError."""
    command = [sys.executable, str(CHILD), "overhead", str(folder / "tuned" / model)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    return {"kind": OVERHEAD, "model": model, **json.loads(done.stdout.splitlines()[-1])}


def slowdowns(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, int, str], tuple[float, float]]:
    """By model, busy programs and runtime: median and 99th percentile over the median alone."""
    last = {(one["model"], one["busy"], one["runtime"]): one for one in lines if one["kind"] == KIND}
    found = {}
    for (model, level, runtime), one in last.items():
        if (alone := last.get((model, 0, runtime))) is not None:
            found[model, level, runtime] = (one["median"] / alone["median"], one["p99"] / alone["median"])
    return found


def served(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[float, float]]:
    """The same of models that are served, by model, runtime and way."""
    alone = {
        (one["model"], one["runtime"]): one["median"]
        for one in lines
        if one["kind"] == KIND and not one["busy"]
    }
    return {
        (one["model"], one["runtime"], one["way"]): (
            one["median"] / alone[one["model"], one["runtime"]],
            one["p99"] / alone[one["model"], one["runtime"]],
        )
        for one in lines
        if one["kind"] == SERVED and (one["model"], one["runtime"]) in alone
    }


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The score board's figures, as far as the lines have them."""
    slow = slowdowns(lines)
    over = [
        ours / theirs
        for (model, level, runtime), values in slow.items()
        if runtime == OURS and level and (model, level, ORT) in slow
        for ours, theirs in zip(values, slow[model, level, ORT], strict=True)
    ]
    servers = served(lines)
    over += [
        ours / theirs
        for (model, runtime, _), values in servers.items()
        if runtime == OURS and (model, ORT, APART) in servers
        for ours, theirs in zip(values, servers[model, ORT, APART], strict=True)
    ]
    alone = {
        (one["model"], one["runtime"]): one["median"]
        for one in lines
        if one["kind"] == KIND and not one["busy"]
    }
    pool = [
        value / alone[model, POOL]
        for (model, runtime), value in alone.items()
        if runtime == OURS and (model, POOL) in alone
    ]
    calls = [one["ratio"] for one in lines if one["kind"] == OVERHEAD]
    named = {
        "busy.worst_over_onnxruntime": over,
        "busy.alone_over_tvm_pool": pool,
        "call.overhead_worst": calls,
    }
    return {name: round(max(values), 4) for name, values in named.items() if values}


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Latency alone, and how many times as long the median and the 99th percentile are beside others."""
    slow = slowdowns(lines)
    last = {(one["model"], one["busy"], one["runtime"]): one for one in lines if one["kind"] == KIND}
    levels = sorted({level for _, level, _ in last if level})
    servers = served(lines)
    ways = list(dict.fromkeys(way for _, _, way in servers))
    rows = []
    for model, runtime in dict.fromkeys((model, runtime) for model, _, runtime in last):
        alone = last.get((model, 0, runtime))
        cells = [model, runtime, f"{alone['median'] / 1000:.3f}" if alone else ""]
        for level in levels:
            found = slow.get((model, level, runtime))
            cells.append("" if found is None else f"{found[0]:.2f}, {found[1]:.2f}")
        for way in ways:
            found = servers.get((model, runtime, way))
            cells.append("" if found is None else f"{found[0]:.2f}, {found[1]:.2f}")
        rows.append(cells)
    note = "; ".join(f"{name} {value}" for name, value in figures(lines).items())
    head = ["model", "runtime", "alone, ms", *(f"{level} busy: median, p99" for level in levels)]
    head += [f"{WORKERS} at once, {way}" for way in ways]
    return Table(title="Beside busy programs, times the median alone", head=head, rows=rows, note=note)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtimes.busy", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--folder", type=Path, required=True, help="of models, exported and tuned")
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MINUTES)} (%(default)s)")
    parser.add_argument("--served", default=",".join(SERVERS), help="of the models (%(default)s)")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)), help="busy programs (%(default)s)")
    parser.add_argument("--onnxruntime", default="", help="a Python that has it; without, it is left out")
    parser.add_argument("--runtimes", default=f"{OURS},{POOL},{ORT}", help=f"or {STOCK} (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each runtime (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a turn (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of call overhead (%(default)s)")
    parser.add_argument("--overhead-model", default="lstm-2x128", help="(%(default)s)")
    options = parser.parse_args(argv)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    results = Results(options.out)
    runtimes = [one for one in options.runtimes.split(",") if one != ORT or options.onnxruntime]
    about = machine.describe()

    def add(line: dict[str, Any]) -> None:
        results.append({**line, "date": datetime.now(UTC).isoformat(timespec="seconds"), **about})

    for model in filter(None, options.models.split(",")):
        have = {
            (one["busy"], one["runtime"])
            for one in results.lines
            if one.get("model") == model and "busy" in one
        }
        levels = [
            level
            for level in map(int, options.levels.split(","))
            if not {(level, one) for one in runtimes if is_measured(one, level)} <= have
        ]
        if levels:
            prepare(options.folder, model)
            turns = (options.rounds, options.seconds)
            for line in measure(options.folder, model, runtimes, levels, options.onnxruntime, console, turns):
                add(line)
    done_already = {
        (one["model"], one["runtime"], one["way"]) for one in results.lines if one["kind"] == SERVED
    }
    for model in filter(None, options.served.split(",")):
        for runtime, way in ((OURS, APART), (OURS, FORKED), (ORT, APART)):
            if runtime in runtimes and (model, runtime, way) not in done_already:
                prepare(options.folder, model)
                turns = (options.rounds, options.seconds)
                line = serve(options.folder, model, runtime, way, options.onnxruntime, turns)
                console.print(f"{model}, {WORKERS} {way}, {runtime}: {line['median']} us, p99 {line['p99']}")
                add(line)
    model = options.overhead_model
    done = sum(one["kind"] == OVERHEAD and one["model"] == model for one in results.lines)
    for _ in range(done, options.processes):
        prepare(options.folder, model)
        line = call_overhead(options.folder, model)
        console.print(
            f"{model}: {line['load']:.1f} us by wmsched.load, {line['bare']:.1f} bare, {line['ratio']:.4f}"
        )
        add(line)
    print(table(results.lines).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
