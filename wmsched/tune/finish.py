"""Final builds of a model's tuning: with and without schedules, timed, compared and reported."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wmsched.base.cores import name_threads, requested_threads, unbound
from wmsched.metaschedule.construct import is_constructed
from wmsched.metaschedule.tasks import Task
from wmsched.relax.importers.model import Model
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.describe import describe, plain
from wmsched.toolchain.resolve import device_name
from wmsched.tune import folder as tuned_folder
from wmsched.tune import in_model_selection
from wmsched.tune.builds import ALONE, CHOSEN, GRAPH, UNTUNED, Builds
from wmsched.tune.latency import QUICK_ROUNDS, ROUNDS, difference, time_each, time_interleaved
from wmsched.tune.prepare import BF16, Untuned
from wmsched.tune.rpc.one_device import OneDevice
from wmsched.tune.run import Run
from wmsched.tune.state import write_starts

TUNED, EAGER, PEER = "tuned", "eager", "onnxruntime"
ELSEWHERE = "not timed: the builds are timed on one of the devices"  # of PyTorch and onnxruntime
MEASURED, CONSTRUCTED, BY_RULE = "measured", "constructed", "by rule"  # where a function's schedule is from


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task after the run; `seconds` is NaN and `gflops` 0 where no candidate ran.

    `in_model` is of all its calls in one run of the model, in seconds; NaN where they were not timed. `how`
    says where its schedule is from.
    """

    name: str
    weight: int
    trials: int
    failed: int
    seconds: float
    gflops: float
    in_model: float = math.nan
    how: str = MEASURED


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a run came to.

    Parameters
    ----------
    library : Path
    tasks : list of TaskResult
    seconds : dict of str to float
        Whole-model latency by "tuned" and, where there is such a build or runtime, "untuned", "eager" and
        "onnxruntime".
    alone : float or None
        Latency in seconds of the build from per-function bests. Set only if in-model selection beat it.
    kept : str
        Which of the two builds is in `library`: "tuned", or "untuned" where tuning made the whole no faster.
    why : str
        Why it is the untuned one; "" where it is not.
    why_not_eager : str
        Why there is no "eager"; "" where there is.
    difference : float or None
        Largest difference of the library's outputs from PyTorch's, over the largest of these.
    threads : int
        That all were timed with.
    device : str
        What the library runs on, as TVM names it: "cpu", "cuda".
    searched : float
        Seconds of all searches for the folder.
    constructed : float or None
        Seconds from the imported model to the schedules of a construction; None for a search.
    cuda_graph : bool
        Whether the library launches its kernels as CUDA graphs.
    """

    library: Path
    tasks: list[TaskResult]
    seconds: dict[str, float]
    kept: str
    why: str
    why_not_eager: str
    difference: float | None
    threads: int
    device: str
    alone: float | None = None
    searched: float = 0.0
    cuda_graph: bool = False
    constructed: float | None = None


def finish(
    run: Run,
    prepared: Any,
    untuned: Untuned,
    tasks: list[Task],
    database: Any,
    *,
    link: Callable[[Path], None] | None = None,
    searched: float = 0.0,
    constructed: float | None = None,
    schedules: Mapping[str, str] | None = None,
    by_rule: Callable[[str, str], bool] | None = None,
    quick: bool = False,
) -> Tuned:
    """Write the fastest build as the library, its schedules beside it, and the report.

    `prepared` and the run's settings are the tuned one's. On a processor the best `finalists` schedules of
    each function are timed in the model (`in_model_selection`).

    A tuned build is not taken if it cannot be made, computes something else than the untuned one, or is
    slower.

    Parameters
    ----------
    searched : float
        Seconds of this run's search, reported with those of earlier runs.
    link : callable (path), optional
        Writes the library with the schedules of `database`, where the model is compiled with them already.
    constructed : float, optional
        Seconds that a construction took, which has no untuned build to fall back to: its library is written
        only where it is right.
    schedules : mapping of str to str, optional
        By a task's name, where its schedule in `database` is from, if it is not measured.
    by_rule : callable (function, rule), optional
        As for `compile_module`.
    quick : bool
        Whether the whole model is timed by `time_each`, where no build is chosen by it.
    """
    out, model, target, tell = run.options.out, run.model, run.target.tvm, run.tell
    vector_math = run.settings["vector_math"]
    tell("building the library")
    threads = _share_threads()
    with ExitStack() as scopes:
        folder = scopes.enter_context(tuned_folder.scratch(out))
        device = None
        if run.devices is not None:
            inputs = list(model.inputs.values())
            device = scopes.enter_context(OneDevice(run.devices, target, inputs))
        builds = Builds(
            folder,
            untuned,
            prepared,
            target,
            model,
            vector_math=vector_math,
            objects=run.objects,
            interrupted=run.interrupted,
            by_rule=by_rule,
            device=device,
            bf16=run.settings.get(BF16, False),
            allow_different=run.options.allow_different,
        )
        programs = in_model_selection.top_schedules(
            prepared, database, run.options.finalists if run.target.is_cpu else 1
        )
        wanted = bool(programs) or constructed is not None
        why = "" if wanted else "the database has no schedule that ran"
        if wanted and (failure := builds.add(ALONE, database, link)):
            why = f"the {'tuned ' if constructed is None else ''}{failure}"
        elif programs:
            builds.add_chosen(programs, tell)
            if constructed is None:
                _correct(programs, tasks, run.records or out, tell)
        if device is None and run.target.device == "cuda" and wanted and not why:
            # Launched at once, beside the same kernels one by one: the faster of the two is kept.
            failure = builds.add(GRAPH, database, cuda_graph=True)
            if failure:
                tell(f"kernels are launched one by one: the {failure}")
        if why and untuned.library is None:
            return _not_right(run, tasks, why, threads)
        theirs, why_not_eager = None, model.why_not_eager
        calls = dict(builds.calls)
        if model.eager is not None:
            try:
                theirs = model.eager()
                if device is not None:
                    why_not_eager = ELSEWHERE
                elif run.target.is_cpu:
                    calls[EAGER] = model.eager
                else:
                    calls |= _on_gpu(model, target)
                    why_not_eager = "" if EAGER in calls else "this PyTorch sees no GPU"
            except Exception as error:  # a program of another machine or version of torch
                why_not_eager = f"not available: PyTorch cannot run it here ({str(error).strip()[-200:]})"
        elif model.peer is not None and run.target.is_cpu:
            try:
                theirs = model.peer()
                if device is None:
                    calls[PEER] = model.peer
                else:
                    why_not_eager = ELSEWHERE
            except Exception as error:  # of a model that it does not know; no common base
                why_not_eager = f"onnxruntime cannot run it here ({str(error).strip()[-200:]})"
        tell("timing the whole model" if device is None else "timing the whole model on one device")
        if quick and len(builds.calls) < 2:
            seconds = time_each(calls)
        else:
            seconds = time_interleaved(calls, rounds=ROUNDS if constructed is None else QUICK_ROUNDS)
        best = min(
            (name for name in (ALONE, CHOSEN, GRAPH) if name in calls), key=seconds.__getitem__, default=""
        )
        if best != CHOSEN:
            for one in programs:
                one.keep_first()
        if not why and seconds[best] > seconds.get(UNTUNED, math.inf):
            why = "tuning made the whole model no faster"
        kept = UNTUNED if why else best
        library = out / tuned_folder.LIBRARY
        tuned_folder.place(builds.path(kept), library)
        write_starts(out, model.states)
        if programs:
            for name, are in ((tuned_folder.BEST, False), (tuned_folder.CONSTRUCTED, True)):
                own = [one for one in programs if is_constructed(one.records[one.chosen]) is are]
                if own:
                    in_model_selection.save(own, out / name)
    how = dict.fromkeys((task.name for task in tasks), MEASURED) | dict(schedules or {})
    found = Tuned(
        library=library,
        tasks=[replace(result_of(task, _in_model(task, programs)), how=how[task.name]) for task in tasks],
        seconds={name: seconds[name] for name in (UNTUNED, EAGER, PEER) if name in seconds}
        | ({TUNED: seconds[best]} if best else {}),
        kept=TUNED if kept == best else UNTUNED,
        why=why,
        why_not_eager=why_not_eager,
        difference=None if theirs is None else difference(builds.outputs[kept], theirs),
        threads=threads,
        device=run.target.device,
        alone=seconds[ALONE] if best == CHOSEN else None,
        searched=searched + tuned_folder.searched_before(out),
        constructed=constructed,
        cuda_graph=kept == GRAPH,
    )
    with unbound():  # what computes constants runs
        built = prepared if kept == best else pipeline.prepare(model.module, target)
    tuned_folder.write_json(out / tuned_folder.FUNCTIONS, plain(describe(built)))
    _report(run, found)
    return found


def written(
    run: Run,
    prepared: Any,
    tasks: Sequence[Task],
    link: Callable[[Path], None],
    *,
    constructed: float,
    schedules: Mapping[str, str],
) -> Tuned:
    """Write a construction's library for a device that this machine lacks: neither compared nor timed.

    Parameters
    ----------
    link, constructed, schedules
        As of `finish`.
    """
    library = run.options.out / tuned_folder.LIBRARY
    with tuned_folder.scratch(run.options.out) as folder:
        link(folder / library.name)
        tuned_folder.place(folder / library.name, library)
    found = Tuned(
        library=library,
        tasks=[replace(result_of(task), how=schedules[task.name]) for task in tasks],
        seconds={},
        kept=TUNED,
        why="",
        why_not_eager=f"this machine has no {run.target.device} device: the library has not run",
        difference=None,
        threads=requested_threads(os.environ),
        device=run.target.device,
        constructed=constructed,
    )
    tuned_folder.write_json(run.options.out / tuned_folder.FUNCTIONS, plain(describe(prepared)))
    _report(run, found)
    return found


def _correct(
    programs: list[in_model_selection.Finalists], tasks: list[Task], out: Path, tell: Callable[[str], None]
) -> None:
    """Correct what the database and the tasks have of functions that take another time in the model."""
    for place, factor in in_model_selection.correct_records(programs, out).items():
        for task in tasks:
            if task.workload is not None and programs[place].workload.same_as(task.workload):
                task.correct(dict.fromkeys(range(len(task.times)), factor))
                tell(f"{task.name}: {factor:.2g} times as long in the model: its records are corrected")


def _not_right(run: Run, tasks: list[Task], why: str, threads: int) -> Tuned:
    """A construction whose library is not right: nothing is written."""
    return Tuned(
        library=run.options.out / tuned_folder.LIBRARY,
        tasks=[result_of(task) for task in tasks],
        seconds={},
        kept="",
        why=why,
        why_not_eager="",
        difference=None,
        threads=threads,
        device=run.target.device,
    )


def _on_gpu(model: Model, target: Any) -> dict[str, Callable[[], Any]]:
    """PyTorch's call on the GPU that the library runs on; {} where it has none."""
    import torch

    if model.on_gpu is None or device_name(target) != "cuda" or not torch.cuda.is_available():
        return {}
    call = model.on_gpu()
    call()  # chooses algorithms, and allocates
    return {EAGER: call}


def _in_model(task: Task, programs: list[in_model_selection.Finalists]) -> float:
    """Seconds of a task's calls in one run of the model; NaN where that is not known."""
    found = in_model_selection.program_of(task.workload, programs)
    return math.nan if found is None else found.seconds


def _share_threads() -> int:
    """TVM's threads, which PyTorch is given too."""
    import torch
    import tvm

    name_threads(tvm)
    threads = requested_threads(os.environ)
    torch.set_num_threads(threads)
    return threads


def _report(run: Run, found: Tuned) -> None:
    import torch
    import tvm

    def number(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    tasks = [{key: number(v) for key, v in asdict(task).items()} for task in found.tasks]
    about = {
        "model": run.model.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": run.target.text,
        "threads": found.threads,
        "versions": {"tvm": tvm.__version__, "torch": torch.__version__},
        "seconds": found.seconds,
        "alone": found.alone,
        "search_seconds": round(found.searched, 1),
        "construct_seconds": None if found.constructed is None else round(found.constructed, 1),
        "library": {"file": found.library.name, "build": found.kept, "why": found.why},
        "cuda_graph": found.cuda_graph,
        "half": run.options.half,
        "vector_math": run.settings["vector_math"] and found.kept == TUNED,
        "eager": found.why_not_eager or "timed",
        "difference": number(found.difference),
        "tasks": tasks,
    }
    tuned_folder.write_json(run.options.out / tuned_folder.REPORT, about)


def result_of(task: Any, in_model: float = math.nan) -> TaskResult:
    """A task of the search as it is reported."""
    ran = math.isfinite(task.best)
    return TaskResult(
        name=task.name,
        weight=task.weight,
        trials=task.trials,
        failed=task.failed,
        seconds=task.best if ran else float("nan"),
        gflops=task.flop / task.best / 1e9 if ran else 0.0,
        in_model=in_model,
    )
