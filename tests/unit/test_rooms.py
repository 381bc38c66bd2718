"""The house: no room has over 15 modules, no module over 400 lines, and no face loads torch or a TVM."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

PACKAGES = ("wmsched", "data_builder", "benchmarks")
MAX_MODULES = 15
MAX_LINES = 400
HEAVY = ("torch", "tvm", "transformers", "xgboost")
FACES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "wmsched").rglob("__init__.py")
    if not {"no_torch_site", "worker_site"} & set(path.parts)
)


def python_files(*folders: str) -> list[Path]:
    """Python files of the repository's packages and tests."""
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_no_room_has_more_modules_than_one_can_know() -> None:
    counts: dict[str, int] = {}
    for path in python_files(*PACKAGES):
        if path.name not in ("__init__.py", "__main__.py"):
            room = str(path.parent.relative_to(ROOT))
            counts[room] = counts.get(room, 0) + 1
    assert len(counts) > 30
    assert {room: count for room, count in counts.items() if count > MAX_MODULES} == {}


def test_no_module_is_longer_than_one_reads_at_once() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*PACKAGES, "tests")
    }
    assert len(lengths) > 500
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize("face", FACES)
def test_a_face_loads_nothing_heavy_before_a_name_is_asked_for(face: str) -> None:
    code = f"import sys, json, {face}; print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []


@pytest.mark.parametrize("face", [face for face in FACES if face not in ("wmsched", "wmsched.backends")])
def test_every_room_says_what_it_is_for_and_what_it_gives(face: str) -> None:
    module = importlib.import_module(face)
    assert module.__doc__ and len(module.__doc__.split()) > 5
    assert isinstance(module.__all__, list)


def test_names_of_faces_are_where_the_faces_say() -> None:
    names = [
        (face, name)
        for face in (
            "wmsched.schedules",
            "wmsched.features",
            "wmsched.model",
            "wmsched.search",
            "wmsched.learn",
        )
        for name in importlib.import_module(face).__all__
    ]
    assert len(names) > 20
    for face, name in names:
        assert getattr(importlib.import_module(face), name) is not None


OLD = ("wmsched.resolve", "wmsched.backends.tir_workload")


def test_old_paths_are_listed_and_their_new_modules_are_there() -> None:
    from wmsched.backends import MOVED

    assert set(MOVED) >= {
        *OLD,
        "wmsched.backends.auto_scheduler",
        "wmsched.backends.meta_tune",
        "wmsched.backends.meta_schedule",
        "wmsched.backends.meta_runner",
    }
    for new in MOVED.values():
        assert (ROOT / (new.replace(".", "/") + ".py")).is_file()


def test_an_old_path_works_and_names_the_new_one() -> None:
    code = "import warnings; warnings.simplefilter('error'); import wmsched.resolve"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "wmsched.resolve is now wmsched.toolchain.resolve" in ran.stderr
    code = "import wmsched.resolve as old, wmsched.toolchain.resolve as new; "
    code += "print(old.autoscheduler_tvm is new.autoscheduler_tvm)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.split() == ["True"]
