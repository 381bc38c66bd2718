"""Which TVM is found, and what is said when it is not: with make-believe TVMs, each case in its own
interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain import install, resolve

REPORT = """
import json, os, subprocess, sys
{before}
from wmsched.toolchain import resolve
from wmsched.base.errors import EnvironmentProblem
told = {{}}
try:
    tvm = resolve.{function}()
    told["file"], told["version"] = tvm.__file__, tvm.__version__
    child = "import tvm, numpy; print(tvm.__version__, hasattr(numpy, 'float_'))"
    ran = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    told["child"] = ran.stdout.strip() or ran.stderr
except EnvironmentProblem as error:
    told["problem"] = str(error)
told["xgboost_first"] = sys.modules.get("xgboost") is not None and sys.modules["xgboost"].before_tvm
print(json.dumps(told))
"""


def make_tvm(root: Path, version: str, *parts: str, old_numpy: bool = False) -> Path:
    """A folder with a package ``tvm`` of the given sub-packages; returns the folder to put on a path."""
    package = root / "tvm"
    for part in ("", *parts):
        folder = package
        for name in filter(None, part.split("/")):
            folder = folder / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
        folder.mkdir(parents=True, exist_ok=True)
    takes = "import numpy; numpy.float_\n" if old_numpy else ""
    (package / "__init__.py").write_text(f"{takes}__version__ = {version!r}\n")
    if old_numpy:
        (package / "_ffi").mkdir()
        (package / "_ffi" / "runtime_ctypes.py").write_text("np.dtype(np.float_): 'float64'\n")
    return root


def ask(tmp_path: Path, function: str = "autoscheduler_tvm", *, path=(), wmsched_tvm=None, before="") -> dict:
    """Call `function` in a fresh interpreter with a make-believe xgboost and no other TVM about."""
    stand_ins = tmp_path / "stand-ins"
    stand_ins.mkdir(exist_ok=True)
    (stand_ins / "xgboost.py").write_text("import sys; before_tvm = 'tvm' not in sys.modules\n")
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WMSCHED_TVM")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, [*path, stand_ins, ROOT]))
    if wmsched_tvm:
        env["WMSCHED_TVM"] = str(wmsched_tvm)
    hide = f"sys.prefix = {str(tmp_path / 'no-venv')!r}\n"
    code = REPORT.format(function=function, before=hide + before)
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.strip().splitlines()[-1])


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return {
        "own": make_tvm(tmp_path / "own", "0.9.own", "auto_scheduler"),
        "wheel": make_tvm(tmp_path / "wheel", "0.16.wheel", "auto_scheduler"),
        "apache": make_tvm(tmp_path / "apache", "0.27.apache", "s_tir/meta_schedule"),
    }


def test_the_users_own_tvm_comes_first(tmp_path: Path, folders) -> None:
    told = ask(tmp_path, path=[folders["own"]], wmsched_tvm=folders["wheel"])
    assert told["version"] == "0.9.own"
    assert told["child"].startswith("0.9.own")
    assert told["xgboost_first"]


def test_the_wheel_steps_in_where_only_apache_tvm_is_on_the_path(tmp_path: Path, folders) -> None:
    told = ask(tmp_path, path=[folders["apache"]], wmsched_tvm=folders["wheel"])
    assert told["version"] == "0.16.wheel"
    assert told["child"].startswith("0.16.wheel")  # TVM's worker processes see the same one


def test_a_source_checkout_is_taken_by_its_python_folder(tmp_path: Path, folders) -> None:
    checkout = tmp_path / "checkout"
    make_tvm(checkout / "python", "0.12.src", "auto_scheduler")
    assert ask(tmp_path, wmsched_tvm=checkout)["version"] == "0.12.src"


def test_the_folder_of_the_virtual_environment_is_the_last_resort(tmp_path: Path) -> None:
    make_tvm(tmp_path / "no-venv" / resolve.WHEEL_FOLDER, "0.16.venv", "auto_scheduler")
    assert ask(tmp_path)["version"] == "0.16.venv"


def test_only_apache_tvm_says_how_to_get_autoscheduler(tmp_path: Path, folders) -> None:
    before = f"sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(folders['apache'])!r}]"
    problem = ask(tmp_path, before=before)["problem"]
    assert "setup-tvm" in problem and str(folders["apache"]) in problem


def test_apache_tvm_already_imported_is_refused(tmp_path: Path, folders) -> None:
    told = ask(tmp_path, path=[folders["apache"]], wmsched_tvm=folders["wheel"], before="import tvm")
    assert "already imported TVM 0.27.apache" in told["problem"] and "new process" in told["problem"]


def test_an_old_tvm_gets_its_numpy_name_here_and_in_its_workers(tmp_path: Path) -> None:
    own = make_tvm(tmp_path / "old", "0.8.old", "auto_scheduler", old_numpy=True)
    told = ask(tmp_path, path=[own])
    assert told["version"] == "0.8.old"
    assert told["child"] == "0.8.old True"


def test_meta_schedule_passes_over_autoschedulers_tvm(tmp_path: Path, folders) -> None:
    told = ask(tmp_path, "meta_schedule_tvm", path=[folders["wheel"], folders["apache"]])
    assert told["version"] == "0.27.apache"
    assert told["child"].startswith("0.27.apache")


def test_meta_schedule_refuses_autoschedulers_tvm_in_the_process(tmp_path: Path, folders) -> None:
    told = ask(tmp_path, "meta_schedule_tvm", path=[folders["wheel"], folders["apache"]], before="import tvm")
    assert "already imported" in told["problem"]


def test_install_does_nothing_the_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_tvm(tmp_path / "there", "0.16", "auto_scheduler")
    (folder / "sitecustomize.py").write_text((resolve.SITE / "sitecustomize.py").read_text())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was started"))
    assert install.install(folder) == (folder, False)


def test_an_older_install_gets_the_newer_sitecustomize_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tvm(tmp_path / "there", "0.16", "auto_scheduler")
    (folder / "sitecustomize.py").write_text(resolve.OLD_SITECUSTOMIZE)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was started"))
    assert install.install(folder) == (folder, False)
    assert (folder / "sitecustomize.py").read_text() == (resolve.SITE / "sitecustomize.py").read_text()
    (folder / "sitecustomize.py").write_text("print('mine')\n")
    assert install.install(folder) == (folder, False)
    assert (folder / "sitecustomize.py").read_text() == "print('mine')\n"


def test_install_fetches_into_place_and_writes_the_fixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def pip(command, **_):
        commands.append(command)
        make_tvm(Path(command[command.index("--target") + 1]), "0.16", "auto_scheduler")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    (tmp_path / "tvm-ansor").mkdir()  # what a kill may have left
    folder, fresh = install.install(tmp_path / "tvm-ansor")
    assert fresh and (folder / "tvm" / "auto_scheduler").is_dir()
    assert (folder / "sitecustomize.py").read_text() == (resolve.SITE / "sitecustomize.py").read_text()
    assert commands[0][-1] == install.WHEEL and "--no-deps" in commands[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["tvm-ansor"]


def test_install_reports_what_pip_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "no network here")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(EnvironmentProblem, match="no network here"):
        install.install(tmp_path / "tvm-ansor")
    assert list(tmp_path.iterdir()) == []


def test_usable_cores_follow_the_affinity_of_the_process() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from wmsched.base.cores import usable_cores; print(usable_cores())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "1"
