"""What a run came to, as the command line prints it: tables, and how to run the library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmsched.base.console import say
from wmsched.base.cores import BIND
from wmsched.tune import folder as tuned_folder

if TYPE_CHECKING:
    from rich.console import Console

BUILD = """
to build a model with it:
  from wmsched.ansor.task_scheduler import ApplyHistoryBest, vector_math
  config = {{"relay.backend.use_auto_scheduler": True}}
  with ApplyHistoryBest({log!r}{option}), tvm.transform.PassContext(opt_level=3, config=config):
      library = tvm.relay.build(mod, target=target, params=params)
or one task, which then lays its weights out at each call (without the option it expects them laid out):
  schedule, tensors = task.apply_best({log!r}, layout_rewrite_option=1)
  with vector_math({value}):
      library = tvm.build(schedule, tensors, task.target)"""
RUN = """
library: {library}
to run it:
  import wmsched
  model = wmsched.load({folder!r})
  output = model(array)  # or a PyTorch tensor; several in the order listed in {model}
without wmsched{threads}:
  device = tvm.{device}()
  machine = tvm.relax.VirtualMachine(tvm.runtime.load_module({library!r}), device)
  outputs = machine["main"](tvm.runtime.tensor(array, device))"""
NOT_MEASURED = "-: not measured"
RUN_SHAPES = """
to run it:
  import wmsched
  model = wmsched.load({folder!r})  # one function of all these shapes
  output = model(array)  # or a PyTorch tensor; several in the order listed in {model}
each shape's {library} is in a folder of its own in {folder}/shapes"""
RUN_THREADS = """, with TVM_NUM_THREADS={threads} in the environment (otherwise TVM counts processors before
each parallel loop and uses half of them)"""
RUN_UNBOUND = """ and TVM_BIND_THREADS=0 (otherwise TVM binds threads to the first processors, of which two
may share a core)"""


def _print_tasks(console: Console, found: list[Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from wmsched.tune.progress import latency

    timed = any(getattr(best, "in_model", 0) > 0 for best in found)
    table = Table(box=None, pad_edge=False)
    table.add_column("task")
    for heading in ("trials", "latency", "GFLOP/s", *(["all calls in the model"] if timed else [])):
        table.add_column(heading, justify="right")
    for best in found:
        speed = f"{best.gflops:.2f}" if best.seconds > 0 else "-"
        more = [latency(best.in_model)] if timed else []
        table.add_row(Text(best.name), str(best.trials), latency(best.seconds), speed, *more)
    console.print(table)
    if any(not best.seconds > 0 or (timed and not best.in_model > 0) for best in found):
        say(console, NOT_MEASURED)


def _print_left(console: Console, found: list[Any]) -> None:
    """What a search that was too short has left as it was."""
    left = sum(best.trials == 0 for best in found)
    if 0 < left < len(found):
        say(
            console,
            f"\n{left} of {len(found)} functions had no trial and have the schedule that the model ranks "
            "first; --resume with more --minutes or --trials goes on with them",
        )


def print_latencies(console: Console, found: Any) -> None:
    """The whole model's latency, beside what it was and what others take."""
    if not found.seconds:
        say(console, f"not compared and not timed: {found.why_not_eager}")
        return
    from rich.table import Table

    from wmsched.tune.progress import latency

    before = next(
        found.seconds[key] for key in ("untuned", "eager", "onnxruntime", "tuned") if key in found.seconds
    )
    runs_on = f"{found.threads} threads" if found.device == "cpu" else found.device
    table = Table(box=None, pad_edge=False)
    for heading in (f"whole model, {runs_on}", "latency", "times as fast"):
        table.add_column(heading, justify="left" if not table.columns else "right", no_wrap=True)
    for key, label in (
        ("untuned", "before: not tuned"),
        ("tuned", "after: tuned" if found.constructed is None else "constructed"),
        ("eager", "PyTorch eager"),
        ("onnxruntime", "onnxruntime"),
    ):
        if key in found.seconds:
            seconds = found.seconds[key]
            table.add_row(label, latency(seconds), f"{before / seconds:.2f}")
    console.print()
    console.print(table)
    if found.alone is not None:
        say(
            console,
            "schedules were selected inside the model; the fastest standalone schedules take "
            f"{latency(found.alone)}",
        )
    if found.why_not_eager:
        say(console, f"PyTorch eager: {found.why_not_eager}")
    if found.difference is not None:
        whose = "onnxruntime" if "onnxruntime" in found.seconds else "PyTorch"
        say(console, f"largest difference from {whose}'s outputs: {found.difference:.1e} of their largest")


def _print_whole(console: Console, found: Any) -> None:
    print_latencies(console, found)
    if found.why:
        say(console, f"{found.why}: the library is the one without tuning")
    say(
        console,
        RUN.format(
            library=str(found.library),
            folder=str(found.library.parent),
            device=found.device,
            model=tuned_folder.ABOUT,
            threads=run_threads(found.threads) if found.device == "cpu" else "",
        ),
    )


def print_shapes(console: Console, found: Any, *, how_to_run: bool = True) -> None:
    """Each shape's latency, which extents may be padded, and how to run the model."""
    from rich.table import Table
    from rich.text import Text

    from wmsched.tune.progress import latency

    keys = ("untuned", "tuned", "eager", "onnxruntime")
    parts = found.parts
    shown = [key for key in keys if any(key in one.seconds for one in parts.values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("shape")
    for heading in ("functions", "trials", *shown):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, one in parts.items():
        times = [latency(one.seconds[key]) if key in one.seconds else "-" for key in shown]
        trials = str(sum(task.trials for task in one.tasks))
        table.add_row(Text(label), str(len(one.tasks)), trials, *times)
    console.print(table)
    for label, one in parts.items():
        if one.why:
            say(console, f"{label}: {one.why}: its library is the one without tuning")
    for line in padding_lines(found.out, found.padding):
        say(console, line)
    if how_to_run:
        library = next(iter(parts.values())).library.name
        say(console, RUN_SHAPES.format(folder=str(found.out), model=tuned_folder.ABOUT, library=library))


def padding_lines(folder: Path, padding: list[dict[str, Any]]) -> list[str]:
    """What a folder's ``model.json`` says of padding, a line for each set of extents that vary together."""
    import json

    about = json.loads((folder / tuned_folder.ABOUT).read_text(encoding="utf-8"))
    names = [spec["name"] for spec in about["inputs"]]
    found = []
    for group in padding:
        axes = ", ".join(f"{names[k]} axis {axis}" for k, axis in group["inputs"])
        verdict = f"not padded: {group['why']}" if group["why"] else "padded to the next larger shape"
        found.append(f"between its shapes, {axes}: {verdict}")
    return found


def run_threads(threads: int) -> str:
    unbound = os.environ.get(BIND) == "0" and threads > 1
    return RUN_THREADS.format(threads=threads) + (RUN_UNBOUND if unbound else "")
