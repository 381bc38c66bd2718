"""What a run came to, as it is printed."""

from __future__ import annotations

import io
import math
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from wmsched.cli.outcome import NOT_MEASURED, _print_tasks, print_shapes
from wmsched.tune.folder import describe


def said(show, *given, **named) -> str:
    console = Console(file=io.StringIO(), width=200)
    show(console, *given, **named)
    return console.file.getvalue()


def task(name: str, **more) -> SimpleNamespace:
    return SimpleNamespace(**({"name": name, "trials": 4, "seconds": 1e-3, "gflops": 2.0} | more))


def test_a_dash_in_the_table_of_tasks_is_explained_where_there_is_one():
    whole, untimed = task("dense", in_model=2e-3), task("mean", in_model=math.nan)
    untried = task("pool", trials=0, seconds=math.nan, gflops=0.0, in_model=1e-3)
    assert NOT_MEASURED not in said(_print_tasks, [whole])
    assert NOT_MEASURED in said(_print_tasks, [whole, untimed])
    assert NOT_MEASURED in said(_print_tasks, [whole, untried])
    assert NOT_MEASURED not in said(_print_tasks, [task("dense"), task("mean")])  # no such column


def test_a_folder_that_its_owner_removes_is_not_named(tmp_path):
    spec = {"name": "x", "shape": [8], "dtype": "float32"}
    describe(tmp_path, {"inputs": [spec]})
    one = SimpleNamespace(seconds={"tuned": 1e-3}, tasks=[], why="", library=Path("model.so"))
    found = SimpleNamespace(out=tmp_path, parts={"x=8": one, "x=4": one}, padding=[])
    assert str(tmp_path) in said(print_shapes, found)
    assert str(tmp_path) not in said(print_shapes, found, how_to_run=False)
