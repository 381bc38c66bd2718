"""Candidates a second that one and two devices behind TVM's RPC tracker time.

Two devices on loopback, each pinned to a core of its own, time the same candidates in turns: the first alone,
the second alone, both. Candidates are built beforehand, so builds are not in the rate: on loopback they would
take the devices' cores, and a fleet has its own. The search's process and the tracker are not pinned.

What limits the rate is in each line. `cpu_share` is the devices' processor time over their number and the
elapsed time; the rest of the time they wait, for a program or for full speed (`measure.clock_probe`). Both
devices share the memory and the last-level cache, which two machines do not.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.plan import Results
from wmsched.base.cores import thread_env
from wmsched.base.errors import EnvironmentProblem
from wmsched.measure.tracker import Tracker

KIND = "rpc_fleet"
KEY = "benchmark"
ROUNDS = 5
EACH = 8  # candidates of a program
PROGRAMS = ("conv2d-relu", "fully-connected", "softmax", "layernorm-mean")
ONE, OTHER, BOTH = "first", "second", "both"  # which devices time, in the order of a round's turns
START_SECONDS = 180.0
FAILED_SHARE = 0.2  # of the candidates, above which a rate means nothing

Line = dict[str, Any]


def speedups(lines: Sequence[Line]) -> list[float]:
    """Rate of both devices over the mean rate of one, of each complete round."""
    rounds: dict[int, dict[str, float]] = {}
    for line in lines:
        if line["kind"] == KIND:
            rounds.setdefault(line["round"], {})[line["devices"]] = line["candidates"] / line["seconds"]
    return [
        rates[BOTH] / statistics.fmean((rates[ONE], rates[OTHER]))
        for rates in rounds.values()
        if set(rates) == {ONE, OTHER, BOTH}
    ]


@dataclass
class Loopback:
    """A tracker and two pinned devices, processes of this machine."""

    tracker: Tracker
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: Sequence[str], core: int | None = None) -> None:
        """Start a process of Python, on one core if it is named."""
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.processes.append(
            subprocess.Popen(
                [*pinned, sys.executable, "-m", *command],
                env=thread_env(os.environ) | {"PYTHONPATH": path},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def wait(self, count: int) -> None:
        """Wait until the tracker knows so many devices."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with suppress(EnvironmentProblem):
                if len(self.tracker.addresses()) == count:
                    return
            time.sleep(0.2)
        raise EnvironmentProblem(
            f"{count} devices have not come to {self.tracker.where} within {START_SECONDS:.0f} seconds: "
            f"start one yourself to see why, `wmsched device --tracker {self.tracker.where} --key {KEY}`"
        )

    def cpu_seconds(self) -> float:
        """Processor time of the devices and their children so far."""
        import psutil

        total = 0.0
        for process in self.processes[1:]:
            with suppress(psutil.Error):
                own = psutil.Process(process.pid)
                for one in [own, *own.children(recursive=True)]:
                    with suppress(psutil.Error):
                        times = one.cpu_times()
                        total += times.user + times.system
        return total


@contextmanager
def loopback(cores: Sequence[int]) -> Iterator[Loopback]:
    """Start a tracker and a device on each of the cores; end them with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    found = Loopback(Tracker(tracker_host="127.0.0.1", tracker_port=port, tracker_key=KEY))
    try:
        ports = ["--port", str(port), "--port-end", str(port + 1)]
        found.start(["tvm.exec.rpc_tracker", "--host", "127.0.0.1", *ports, "--silent"])
        where = ["--host", "127.0.0.1", "--tracker", found.tracker.where, "--key", KEY]
        for core in cores:
            found.start(["wmsched", "device", *where], core)
        found.wait(len(cores))
        yield found
    finally:
        for process in found.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def candidates(target: Any, programs: Sequence[str], each: int) -> list[Any]:
    """Random schedules of the programs, in turn one of each, so that every device meets every program."""
    from tvm.s_tir import meta_schedule as ms

    from benchmarks.tune.meta.workloads import module
    from wmsched.metaschedule.intrinsics import import_intrinsics
    from wmsched.metaschedule.rules.spaces import space_generator

    import_intrinsics(target)
    found = []
    for name in programs:
        context = ms.TuneContext(
            module(name),
            target=target,
            space_generator=space_generator(target),
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=2 * each, genetic_num_iters=1, init_min_unmeasured=each
            ),
            task_name=name,
            rand_state=1,
            num_threads=1,
        )
        context.pre_tuning(
            max_trials=each,
            num_trials_per_iter=each,
            design_spaces=context.generate_design_space(),
            database=ms.database.MemoryDatabase(),
            cost_model=ms.cost_model.RandomModel(seed=1),
        )
        found.append(list(context.generate_measure_candidates() or [])[:each])
        context.post_tuning()
    return [candidate for turn in zip(*found) for candidate in turn]


def built(target: Any, chosen: Sequence[Any], folder: Path) -> list[Any]:
    """Inputs of a runner: the candidates, compiled into a folder."""
    from tvm.s_tir.meta_schedule.runner import RunnerInput

    from wmsched.metaschedule.measure.builder import build_with_vector_math

    found = []
    for k, candidate in enumerate(chosen):
        path = folder / f"{k}.so"
        build_with_vector_math(candidate.sch.mod, target).export_library(str(path))
        found.append(RunnerInput(str(path), "cpu", candidate.args_info))
    return found


def turn(devices: Any, inputs: Sequence[Any], which: str, here: Loopback) -> Line:
    """Time all programs once on the devices of a turn; the other one waits."""
    names = sorted(devices.fleet.names())
    if len(names) != 2:
        raise EnvironmentProblem(f"a device was lost: of two there are {names}; run the command again")
    with ExitStack() as held:
        if which != BOTH:
            while True:  # until the one that is to wait is held
                one = held.enter_context(devices.fleet.one())
                if one.name != names[0 if which == ONE else 1]:
                    break
                held.pop_all().close()
        before, began = here.cpu_seconds(), time.monotonic()
        results = [future.result() for future in devices.run(list(inputs))]
        seconds = time.monotonic() - began
        spent = here.cpu_seconds() - before
    failed = [result for result in results if not result.run_secs]
    if len(failed) > FAILED_SHARE * len(results):
        raise EnvironmentProblem(
            f"{len(failed)} of {len(results)} candidates failed: {str(failed[0].error_msg)[-300:]}"
        )
    count = 2 if which == BOTH else 1
    return {
        "kind": KIND,
        "devices": which,
        "candidates": len(results),
        "failed": len(failed),
        "seconds": seconds,
        "cpu_share": spent / seconds / count,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tune.meta.rpc_fleet", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="results file, JSON lines; resumed")
    parser.add_argument("--cores", default="0,1", help="of the two devices (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each (%(default)s)")
    parser.add_argument("--each", type=int, default=EACH, help="candidates of a program (%(default)s)")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="representatives (%(default)s)")
    options = parser.parse_args(argv)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    cores = [int(core) for core in options.cores.split(",")]
    if len(set(cores)) != 2:
        parser.error(f"--cores {options.cores}: two different cores are wanted, such as 0,1")
    results, about = Results(options.out), machine.describe()
    have = {(line["round"], line["devices"]) for line in results.lines if line["kind"] == KIND}
    wanted = [(k, which) for k in range(options.rounds) for which in (ONE, OTHER, BOTH)]
    if left := [one for one in wanted if one not in have]:
        for number, line in measure(options, cores, left, console):
            date = datetime.now(UTC).isoformat(timespec="seconds")
            results.append({**line, "round": number, "cores_pinned": cores, "date": date, **about})
    if found := speedups(results.lines):
        print(
            f"both devices over one: {statistics.median(found):.3f} (rounds: "
            f"{', '.join(f'{ratio:.3f}' for ratio in found)})"
        )
    return 0


def measure(
    options: argparse.Namespace, cores: Sequence[int], left: Sequence[tuple[int, str]], console: Console
) -> Iterator[tuple[int, Line]]:
    """Yield the line of each turn that is left, with its round; an uncounted turn comes first."""
    import json

    from wmsched.toolchain.resolve import meta_schedule_tvm

    tvm = meta_schedule_tvm()
    from wmsched.metaschedule.rpc.runner import describe, opened

    with ExitStack() as scopes:
        here = scopes.enter_context(loopback(cores))
        target = tvm.target.Target(json.loads(describe(here.tracker)["target"]))
        folder = Path(scopes.enter_context(tempfile.TemporaryDirectory(prefix="wmsched-fleet-")))
        console.print("building the candidates")
        inputs = built(target, candidates(target, options.programs.split(","), options.each), folder)
        devices = scopes.enter_context(
            opened(here.tracker, target, tell=console.print, timeout=45.0, min_repeat_ms=0)
        )
        for which in (ONE, OTHER):  # each makes its references
            turn(devices, inputs, which, here)
        for number, which in left:
            line = turn(devices, inputs, which, here)
            rate = line["candidates"] / line["seconds"]
            console.print(
                f"round {number + 1}, {which}: {rate:.2f} candidates a second, "
                f"{100 * line['cpu_share']:.0f} % of a device's time on its core"
            )
            yield number, line


if __name__ == "__main__":
    sys.exit(main())
