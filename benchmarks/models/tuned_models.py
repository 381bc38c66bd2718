"""`python -m benchmarks.models.tuned_models MODEL... --out FILE`: models as `wmsched tune MODEL` leaves them.

Each is tuned with MetaSchedule into a folder beside FILE (a second run goes on with what is there), then
timed in turns in one process: as TVM builds it untuned, tuned with exp, tanh and erf in vectors, the same
schedules with these by the C library, those schedules that are fastest by themselves instead of in the model,
and in PyTorch, eager and compiled. One JSON line a model: kind "tuned_model", `seconds` by build,
`difference` of each build's outputs from PyTorch's eager ones. Then the table of FILE.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.outcomes import ratios
from benchmarks.outcomes.marks import Marks
from benchmarks.outcomes.tables import Table
from benchmarks.plan import Results, read_all
from wmsched.base.errors import WmschedError
from wmsched.toolchain.resolve import meta_schedule_tvm
from wmsched.tune import folder as tuned_folder

KIND = "tuned_model"
TUNED, LIBM, UNTUNED, EAGER, COMPILED = "tuned", "tuned, C library", "untuned", "eager", "torch.compile"
ALONE = "tuned, by themselves"  # lines from before schedules were chosen in the model lack it
BUILDS = (UNTUNED, EAGER, COMPILED, LIBM, ALONE, TUNED)
SHORT = (UNTUNED, EAGER, COMPILED, TUNED)  # without those that say what brings how much
ROUNDS = 15
BLOCK = "models"


def measure(name: str, folder: Path, trials: int, builds: Sequence[str] = BUILDS) -> dict[str, Any]:
    """Tune a benchmark model and time its builds; what its line says.

    Parameters
    ----------
    name : str
        Of `wmsched.zoo.torch_models`.
    folder : Path
        Of the tuning; what is in it counts among `trials`.
    builds : sequence of str
        Which, of `BUILDS`.
    """
    from wmsched.tune.options import ModelOptions
    from wmsched.tune.tune_model import tune_model

    console = Console(stderr=True)
    tuned = tune_model(
        ModelOptions(name=name, out=folder, trials=trials, resume=True, seed=1), console=console
    )
    if tuned.kept != "tuned":
        raise WmschedError(f"{name}: {tuned.why}; there is no tuned build to time")
    import torch
    import tvm

    from wmsched.base.cores import unbound
    from wmsched.relax.importers.load import load
    from wmsched.relax.passes import pipeline
    from wmsched.relax.passes.objects import Objects
    from wmsched.toolchain.targets import meta_target
    from wmsched.tune.in_model_selection import database_of
    from wmsched.tune.latency import difference, library_call, time_interleaved
    from wmsched.tune.prepare import SETTINGS, prepare_model
    from wmsched.zoo import torch_models

    target = meta_target(None)
    model = load(name)
    inputs = list(model.inputs.values())
    settings, _ = tuned_folder.settled(folder, dict.fromkeys(SETTINGS, True))
    prepared, _ = prepare_model(model, target, settings, folder)
    with unbound():
        plain = pipeline.prepare(model.module, target)
    chosen = database_of(folder / tuned_folder.BEST)
    calls: dict[str, Callable[[], Any]] = {}
    with tuned_folder.scratch(folder) as scratch:
        objects = Objects(scratch)
        for build, records, vectors in (
            (UNTUNED, None, False),
            (LIBM, chosen, False),
            (ALONE, database_of(folder), True),
            (TUNED, chosen, True),
        ):
            if build not in builds:
                continue
            path = scratch / f"{len(calls)}.so"
            module = plain if records is None else prepared
            executable = pipeline.compile_module(
                module, target, records, vector_math=vectors, objects=objects
            )
            executable.export_library(str(path))
            calls[build] = library_call(path, target, inputs)
        torch.set_num_threads(tuned.threads)
        module, data = torch_models.build(name)
        compiled = torch.compile(module)
        with torch.inference_mode(), unbound():
            calls[EAGER], calls[COMPILED] = lambda: module(data), lambda: compiled(data)
            reference = calls[EAGER]()
            differences = {
                build: difference(call(), reference) for build, call in calls.items() if build != EAGER
            }
            seconds = time_interleaved({build: calls[build] for build in builds}, rounds=ROUNDS)
    return {
        "model": name,
        "seconds": seconds,
        "difference": differences,
        "threads": tuned.threads,
        "trials": sum(task.trials for task in tuned.tasks),
        "tasks": len(tuned.tasks),
        "search_seconds": round(tuned.searched, 1),
        "tvm": tvm.__version__,
    }


def table(lines: list[dict[str, Any]], among: Sequence[str] = BUILDS) -> Table:
    """Milliseconds of each build of each model, the last line of a model counting, and the mean speedups.

    Parameters
    ----------
    lines : list of dict
        Of a results file.
    among : sequence of str
        Builds; one that a line lacks is left out.

    Raises
    ------
    WmschedError
        There is no line, or they are of several processors or numbers of threads.
    """
    last = {line["model"]: line for line in lines if line["kind"] == KIND}
    places = {(str(line["cpu"]), int(line["threads"])) for line in last.values()}
    if len(places) != 1:
        what = " and ".join(f"{cpu} on {threads} threads" for cpu, threads in sorted(places)) or "no model"
        raise WmschedError(f"a table is of models on one processor, this is of {what}: give another --out")
    ((cpu, threads),) = places
    times = [line["seconds"] for line in last.values()]
    builds = [build for build in among if all(build in seconds for seconds in times)]
    rows = [
        [
            f"{model} ({line['trials']} trials)",
            *(f"{line['seconds'][build] * 1e3:.2f}" for build in builds),
            f"{line['difference'][TUNED]:.0e}",
        ]
        for model, line in last.items()
    ]
    means = [
        ratios.geometric_mean([seconds[build] / seconds[TUNED] for seconds in times]) for build in builds
    ]
    return Table(
        title=f"Whole models on {cpu}, {threads} thread{'s' if threads > 1 else ''}, ms",
        head=["model", *builds, "off by"],
        rows=[*rows, ["**tuned is faster by**", *(f"**{mean:.2f}**" for mean in means), ""]],
        note="",
        level=3,
    )


def marks(name: str) -> Marks:
    """Of a page's block of that name."""
    return Marks(f"<!-- {name}:begin -->", f"<!-- {name}:end -->")


def block(path: Path, place: str, *, short: bool = False) -> str:
    """The table with the command that prints it; `place` is the file's name in that command."""
    made = table(read_all([path]), SHORT if short else BUILDS).markdown()
    command = f"python -m benchmarks.models.tuned_models --out {place}" + (" --short" if short else "")
    return f"{made}\n\nBy `wmsched tune MODEL`; printed by\n`{command}`."


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.models.tuned_models", description=(__doc__ or "").split("\n\n")[0]
    )
    p.add_argument(
        "models", nargs="*", help="names of benchmark models; without any, the table of FILE alone"
    )
    p.add_argument("--trials", type=int, default=512, help="measurements of a model (%(default)s)")
    p.add_argument("--out", type=Path, required=True, help="results file, JSON lines")
    p.add_argument("--readme", type=Path, help="page whose block of models the table goes into")
    p.add_argument("--block", default=BLOCK, help="that block's name (%(default)s)")
    p.add_argument("--short", action="store_true", help="without the builds that say what brings how much")
    options = p.parse_args(argv)
    results = Results(options.out)
    for name in options.models:
        meta_schedule_tvm()
        folder = options.out.with_suffix("") / name
        found = measure(name, folder, options.trials, SHORT if options.short else BUILDS)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        results.append({"kind": KIND, "status": "ok", "date": date, **machine.describe(), **found})
    made = block(options.out, options.out.as_posix(), short=options.short)
    print(made)
    if options.readme:
        text = options.readme.read_text(encoding="utf-8")
        options.readme.write_text(marks(options.block).replaced(text, made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
