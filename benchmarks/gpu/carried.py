"""Wheels for a machine without a network: in parts of a size that can be carried, and installed there.

    python -m benchmarks.gpu.carried DIR FILE.whl ... --bytes 60000000     # writes FILE.whl.000 and on

`install` puts the parts together again. A whole wheel may lie beside them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wmsched.base.errors import EnvironmentProblem

PART = re.compile(r"(.+\.whl)\.(\d{3})")
PART_BYTES = 60_000_000
ERROR_CHARACTERS = 400  # of pip's words


def split(wheel: Path, folder: Path, size: int = PART_BYTES) -> list[Path]:
    """Write a wheel as parts of at most `size` bytes, and return their paths in order."""
    parts: list[Path] = []
    with wheel.open("rb") as file:
        while data := file.read(size):
            parts.append(folder / f"{wheel.name}.{len(parts):03d}")
            parts[-1].write_bytes(data)
    return parts


def whole_wheels(folder: Path, into: Path) -> list[Path]:
    """Return a folder's wheels, those in parts put together in another folder.

    Raises
    ------
    EnvironmentProblem
        There is no wheel, or a part of one is missing.
    """
    parts: dict[str, list[int]] = {}
    for path in folder.iterdir():
        if found := PART.fullmatch(path.name):
            parts.setdefault(found[1], []).append(int(found[2]))
    wheels = sorted(folder.glob("*.whl"))
    for name, numbers in sorted(parts.items()):
        if sorted(numbers) != list(range(len(numbers))):
            raise EnvironmentProblem(
                f"{folder / name}: parts {sorted(numbers)} are there, and one is missing"
            )
        with (into / name).open("wb") as file:
            for number in range(len(numbers)):
                file.write((folder / f"{name}.{number:03d}").read_bytes())
        wheels.append(into / name)
    if not wheels:
        raise EnvironmentProblem(f"{folder} has no wheel (NAME.whl, or its parts NAME.whl.000 and on)")
    return wheels


def install(folder: Path, site: Path | None = None) -> Path:
    """Install a folder's wheels without a network, for this process and its children; return where.

    Parameters
    ----------
    site : Path, optional
        Where to; by default a new folder. What is installed in Python's own folders stays as it is.

    Raises
    ------
    EnvironmentProblem
        As `whole_wheels`, or pip does not install them.
    """
    site = site or Path(tempfile.mkdtemp(prefix="wheels-"))
    with tempfile.TemporaryDirectory() as joined:
        wheels = whole_wheels(folder, Path(joined))
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-compile",
        ]
        done = subprocess.run(
            [*command, "--upgrade", "--target", str(site), *map(str, wheels)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise EnvironmentProblem(
            f"pip does not install the wheels of {folder}: {done.stderr.strip()[-ERROR_CHARACTERS:]}"
        )
    sys.path.insert(0, str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return site


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheels", type=Path, nargs="+")
    parser.add_argument("--bytes", type=int, default=PART_BYTES, help="of a part, at most")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for wheel in options.wheels:
        for part in split(wheel, options.folder, options.bytes):
            print(part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
