"""Install AutoScheduler's TVM from its wheel, or print which TVM is used."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from wmsched.base.errors import EnvironmentProblem
from wmsched.base.files import atomic_open
from wmsched.toolchain.alias_tags import SITE
from wmsched.toolchain.resolve import (
    HOW_TO_GET,
    _has_auto_scheduler,
    _is_ours,
    default_folder,
    find_autoscheduler_root,
)

WHEEL = "hhb-tvm==3.2.3"  # TVM 0.16.dev0 with auto_scheduler, relay and LLVM 17


def install(folder: Path | None = None) -> tuple[Path, bool]:
    """Install AutoScheduler's TVM into `folder` with pip, unless it is there.

    The wheel is tagged for CPython 3.10. Other versions skip its compiled extension and use TVM's ctypes
    interface. A ``sitecustomize.py`` in the folder restores a numpy 1 name that TVM 0.16 needs. It also works
    around wrong alias tags (`wmsched.toolchain.alias_tags`), in TVM's worker processes too.

    Returns
    -------
    folder : Path
        The folder of the install.
    fresh : bool
        False if the TVM was installed already.

    Raises
    ------
    EnvironmentProblem
        pip fails (the message has its output), or `folder` holds something else.
    """
    folder = default_folder() if folder is None else folder.expanduser().resolve()
    mark, site = folder / "sitecustomize.py", (SITE / "sitecustomize.py").read_text(encoding="utf-8")
    if _has_auto_scheduler(folder / "tvm") and mark.is_file():
        if _is_ours(folder) and mark.read_text(encoding="utf-8") != site:
            with atomic_open(mark) as file:
                file.write(site.encode())
        return folder, False
    if folder != default_folder() and folder.exists() and not _is_ours(folder):
        raise EnvironmentProblem(
            f"{folder} is there and holds other things, which putting TVM in its place would remove; "
            "name a folder that does not exist yet"
        )
    # Renamed at the end, so that a killed install leaves no partial TVM.
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(partial)]
    command += ["--python-version", "3.10", "--only-binary=:all:", "--no-deps", WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 or not _has_auto_scheduler(partial / "tvm"):
        shutil.rmtree(partial, ignore_errors=True)
        raise EnvironmentProblem(f"pip could not install {WHEEL} into {folder}: {done.stderr.strip()[-800:]}")
    (partial / "sitecustomize.py").write_text(site, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder, True


def main(argv: list[str] | None = None) -> int:
    """Run ``python -m wmsched.toolchain [install|where] [--folder DIR]``; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m wmsched.toolchain", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["install", "where"], nargs="?", default="where")
    parser.add_argument("--folder", type=Path, default=None, help="default: <sys.prefix>/tvm-ansor")
    options = parser.parse_args(argv)
    try:
        if options.action == "install":
            folder, fresh = install(options.folder)
            print(f"AutoScheduler's TVM ({WHEEL}) {'installed in' if fresh else 'is already in'} {folder}")
        else:
            print(find_autoscheduler_root() or f"no TVM with AutoScheduler: {HOW_TO_GET}")
    except EnvironmentProblem as error:
        print(error, file=sys.stderr)
        return 1
    return 0
