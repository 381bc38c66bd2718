"""The end of a whole model's tuning: build with the best schedules and without, time, compare, write down."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from wmsched import tuned_folder
from wmsched.backends import relax_build
from wmsched.backends.meta_search import Task
from wmsched.backends.relax_latency import deviation, difference, in_turns, library_call, unbound
from wmsched.backends.relax_models import Model
from wmsched.backends.relax_prepare import Untuned
from wmsched.backends.tir_workload import target_text
from wmsched.resolve import device_name, is_cpu


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task after the run; `seconds` is NaN and `gflops` 0 where no candidate ran."""

    name: str
    weight: int
    trials: int
    failed: int
    seconds: float
    gflops: float


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a run came to.

    Parameters
    ----------
    library : Path
    tasks : list of TaskResult
    seconds : dict of str to float
        Whole-model latency by "untuned", "tuned" and, where torch can run it, "eager".
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


def finish(
    out: Path,
    model: Model,
    prepared: Any,
    untuned: Untuned,
    target: Any,
    tasks: list[Task],
    database: Any,
    tell: Callable[[str], None],
    *,
    interrupted: Callable[[], bool] = lambda: False,
    vector_math: bool = False,
) -> Tuned:
    """Write the faster of the two builds as the library, and the report.

    `prepared` and `vector_math` are the tuned one's.

    The tuned build is not taken if it cannot be made, computes something else than the untuned one, or is
    slower.
    """
    _recount(tasks, database)
    tell("building the library")
    threads = _share_threads()
    inputs = list(model.inputs.values())
    with tuned_folder.scratch(out) as folder:
        calls: dict[str, Callable[[], Any]] = {}
        first: dict[str, Any] = {}
        why = ""

        def take(name: str) -> None:
            calls[name] = library_call(folder / f"{name}.so", target, inputs)
            with unbound():
                first[name] = calls[name]()

        shutil.copyfile(untuned.library, folder / "untuned.so")
        take("untuned")
        if not any(math.isfinite(task.best) for task in tasks):
            why = "the database has no schedule that ran"
        else:
            try:
                executable = relax_build.compile_module(prepared, target, database, vector_math=vector_math)
                executable.export_library(str(folder / "tuned.so"))
                take("tuned")
                off, allowed = deviation(first["tuned"], first["untuned"], inputs)
                if off > allowed:
                    why = f"the tuned build's outputs are off by {off:.2g} (allowed: {allowed:g})"
            except Exception as error:  # of TVM's build or of the built program; there is no common base
                if interrupted():
                    raise KeyboardInterrupt from error
                why = f"the tuned build failed: {str(error).strip()[-300:]}"
                calls.pop("tuned", None)
        theirs, why_not_eager = None, model.why_not_eager
        if model.eager is not None:
            try:
                theirs = model.eager()
                if is_cpu(target):
                    calls["eager"] = model.eager
                else:  # it runs where the program was exported, which need not be the target's device
                    why_not_eager = "timed beside processors only"
            except Exception as error:  # a program of another machine or version of torch
                why_not_eager = f"not available: PyTorch cannot run it here ({str(error).strip()[-200:]})"
        tell("timing the whole model")
        seconds = in_turns(calls)
        if not why and seconds["tuned"] > seconds["untuned"]:
            why = "tuning made the whole model no faster"
        kept = "untuned" if why else "tuned"
        library = out / tuned_folder.LIBRARY
        tuned_folder.place(folder / f"{kept}.so", library)
    found = Tuned(
        library=library,
        tasks=[result_of(task) for task in tasks],
        seconds=seconds,
        kept=kept,
        why=why,
        why_not_eager=why_not_eager,
        difference=None if theirs is None else difference(first[kept], theirs),
        threads=threads,
        device=device_name(target),
    )
    _report(out, model, target, found, vector_math=vector_math)
    return found


def _recount(tasks: list[Task], database: Any) -> None:
    """Where no search was needed, the tasks have not been told of the database yet."""
    from wmsched.backends.meta_search import take_over

    if not any(task.trials for task in tasks):
        take_over(tasks, database)


def _share_threads() -> int:
    """TVM's threads, which PyTorch is given too."""
    import torch
    import tvm

    with unbound():
        threads = int(tvm.get_global_func("runtime.NumThreads")())
    torch.set_num_threads(threads)
    return threads


def _report(out: Path, model: Model, target: Any, found: Tuned, *, vector_math: bool) -> None:
    import torch
    import tvm

    def number(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    tasks = [{key: number(v) for key, v in asdict(task).items()} for task in found.tasks]
    about = {
        "model": model.name,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "target": target_text(target),
        "threads": found.threads,
        "versions": {"tvm": tvm.__version__, "torch": torch.__version__},
        "seconds": found.seconds,
        "library": {"file": found.library.name, "build": found.kept, "why": found.why},
        "vector_math": vector_math and found.kept == "tuned",
        "eager": found.why_not_eager or "timed",
        "difference": number(found.difference),
        "tasks": tasks,
    }
    tuned_folder.write_json(out / tuned_folder.REPORT, about)


def result_of(task: Any) -> TaskResult:
    """A task of the search as it is reported."""
    ran = math.isfinite(task.best)
    return TaskResult(
        name=task.name,
        weight=task.weight,
        trials=task.trials,
        failed=task.failed,
        seconds=task.best if ran else float("nan"),
        gflops=task.flop / task.best / 1e9 if ran else 0.0,
    )
