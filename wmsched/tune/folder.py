"""Folder of a model's tuning: its lock, database and output files. Needs no TVM."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmsched.base.errors import LogError, WmschedError
from wmsched.base.files import PARTIAL_SUFFIX, atomic_open, atomic_path, locked
from wmsched.schedules import database

ABOUT = "model.json"
LIBRARY = "model.so"
BEST = "best"  # folder of a database: one schedule for each function, which the library has
CONSTRUCTED = "constructed"  # folder of a database like `BEST`, of schedules that nothing has measured
REPORT = "report.json"
FUNCTIONS = "functions.json"  # what each of the library's functions computes
FORMAT = 1
SAME = ("hash", "target")  # what a database's records are good for


@contextmanager
def opened(folder: Path, about: dict[str, Any], *, resume: bool) -> Iterator[list[str]]:
    """Claim a folder for one process, check that it is this model's, and mend its database.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    about : dict
        Of what is to be in ``model.json`` (`describe`): `model`, `hash`, `target` and `tvm` at least.
    resume : bool
        Whether records may be in it already.

    Yields
    ------
    notes : list of str
        What was mended.

    Raises
    ------
    LogError
        The database has records and `resume` was not asked for, or it cannot be read.
    WmschedError
        The folder cannot be written, is in use, or is another model's.
    """
    with locked(folder / ".lock", whose=folder, option="--out"):
        _check_owner(folder, about)
        if (folder / ABOUT).is_file():  # else nothing says that these are ours
            for left in folder.glob(f".*{PARTIAL_SUFFIX}"):
                left.unlink(missing_ok=True)
            for left in folder.glob(".build-*"):  # of a run that was killed while it built
                shutil.rmtree(left, ignore_errors=True)
        notes = database.mend(folder)
        records = database.check(folder)
        if records and not resume:
            raise LogError(
                f"{records} records are in it already: --resume keeps them, or give another --out",
                place=str(folder / database.RECORDS),
            )
        yield notes


def describe(folder: Path, about: dict[str, Any]) -> None:
    """Write the ``model.json`` of a folder that is `opened`."""
    write_json(folder / ABOUT, {"format": FORMAT, **about})


def _check_owner(folder: Path, about: dict[str, Any]) -> None:
    path = folder / ABOUT
    if not path.is_file():
        if (folder / database.RECORDS).is_file():
            raise WmschedError(
                f"{folder} has a database and no {ABOUT}: nothing says of which model; choose another --out"
            )
        return
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        parts = {name: held[name] for name in (*SAME, "model", "tvm")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WmschedError(
            f"{path} cannot be read ({type(error).__name__}: {error}); choose another --out, or delete that "
            "folder if nothing in it is wanted"
        ) from error
    for name in SAME:
        if parts[name] != about[name]:
            raise WmschedError(
                f"{folder} holds the tuning of {parts['model']} with TVM {parts['tvm']} ({name} "
                f"{parts[name]}); this is {about['model']} with TVM {about['tvm']} ({name} {about[name]}): "
                "choose another --out"
            )


def settled(folder: Path, wanted: dict[str, bool]) -> tuple[dict[str, bool], list[str]]:
    """How a folder's candidates are compiled: as those that it has, for their times compare with no others.

    Parameters
    ----------
    folder : Path
        It may be empty or not there; what cannot be read is for `opened` to say.
    wanted : dict of str to bool
        Of a new one.

    Returns
    -------
    settings : dict of str to bool
    notes : list of str
        Which are not as wanted. A folder from before there was a setting has it off.
    """
    held = about_of(folder)
    if held is None:
        return wanted, []
    found = {name: bool(held.get(name, False)) for name in wanted}
    return found, [
        f"{folder} was begun {_with(found[name])} --{name.replace('_', '-')} and goes on so; another --out "
        f"is tuned {_with(wanted[name])} it"
        for name in wanted
        if found[name] != wanted[name]
    ]


def settled_threads(folder: Path, wanted: int, before: int) -> tuple[int, list[str]]:
    """How many threads a folder's programs run on: as those that it has, for the same reason.

    Parameters
    ----------
    wanted : int
        Of a new one.
    before : int
        Of one from before that was written down.

    Returns
    -------
    threads : int
    notes : list of str
        That they are not as wanted.
    """
    held = about_of(folder)
    found = wanted if held is None else held.get("threads", before)
    if found == wanted or not isinstance(found, int) or found < 1:
        return wanted, []
    return found, [
        f"{folder} was begun on {found} thread{'s' if found > 1 else ''} and goes on so; another --out is "
        f"tuned on {wanted}"
    ]


def searched_before(folder: Path) -> float:
    """Seconds of the searches that a folder's report tells of; 0 without one."""
    try:
        told = json.loads((folder / REPORT).read_text(encoding="utf-8")).get("search_seconds", 0.0)
        return float(told)
    except (OSError, ValueError, TypeError, AttributeError):
        return 0.0


def about_of(folder: Path) -> dict[str, Any] | None:
    """The ``model.json`` of a folder with records; None without them, or where it cannot be read."""
    try:
        held = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return held if isinstance(held, dict) and (folder / database.RECORDS).is_file() else None


def records_state(folder: Path) -> tuple[int, int]:
    """Return what differs after a folder's records were written: (0, 0) without any."""
    try:
        found = (folder / database.RECORDS).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def shapes_of(folder: Path) -> list[dict[str, Any]]:
    """Return the shapes that a folder's ``model.json`` lists; [] of one shape, or where it cannot be read."""
    try:
        found = json.loads((folder / ABOUT).read_text(encoding="utf-8")).get("shapes", [])
    except (OSError, ValueError, AttributeError):
        return []
    return found if isinstance(found, list) else []


def _with(setting: bool) -> str:
    return "with" if setting else "without"


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder inside the folder, for files that are moved into place when they are whole."""
    made = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def place(fresh: Path, path: Path) -> None:
    """Move a finished file to its name, all of it on disk."""
    with atomic_path(path) as name:
        os.replace(fresh, name)


def read(path: Path) -> dict[str, Any]:
    """Return a file of a finished folder. Raises WmschedError where it is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WmschedError(
            f"{path} is not there: {path.parent} is no folder of a finished `wmsched tune MODEL --out "
            f"{path.parent}`; one that was stopped goes on with --resume"
        ) from None
    except (OSError, ValueError) as error:
        raise WmschedError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return found


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    with atomic_open(path) as file:
        file.write(json.dumps(value, indent=1).encode() + b"\n")
