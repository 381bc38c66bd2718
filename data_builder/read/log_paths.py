"""Log files among named files and directories: which ones a command reads.

Directories in TenSet's layout are recognised by the names of their folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wmsched.base.errors import LogError

STDIN = "-"
LOG_SUFFIXES = (".json", ".jsonl", ".log")
ARCHIVES = (".tar", ".tgz")
COMPRESSED = (".gz", ".zst")
#: TenSet's folder of logs, and the one beside it of programs that nobody has measured yet.
MEASURED, UNMEASURED = "measure_records", "to_measure_programs"


@dataclass(frozen=True, slots=True)
class Expanded:
    """The logs among the named paths (each once, in the order named, directories sorted), and files left
    out."""

    logs: tuple[str, ...]
    ignored: tuple[str, ...]


def expand(paths: Iterable[str | Path], *, skip: Iterable[Path] = ()) -> Expanded:
    """List the logs in files and directories.

    Parameters
    ----------
    paths : iterable of str or Path
        Files (any name), directories (searched recursively, links followed, for names ending in .json,
        .jsonl, .log or .tar, these compressed with .gz or .zst too) and `-` for standard input. Of a
        directory in TenSet's layout the programs yet to be measured are left out, unless their folder is
        named itself.
    skip : iterable of Path
        Files that are not logs even where a directory holds them, such as the workloads file, and folders
        that are not entered, such as the dataset that is built.

    Raises
    ------
    LogError
        A path does not exist, is a pickle, or has a name that is not UTF-8.
    """
    skipped = frozenset(os.path.realpath(path) for path in skip)
    seen = set(skipped)
    logs: list[str] = []
    ignored: list[str] = []
    for given in map(str, paths):
        if given == STDIN:
            if STDIN not in logs:
                logs.append(STDIN)
            continue
        path = Path(given)
        if path.is_dir():
            found = []
            for entry in files_under(path, skip=skipped):
                if _is_unmeasured(entry, path):
                    ignored.append(str(entry))
                else:
                    found.append(entry)
        elif path.exists():
            found = [path]
        else:
            raise LogError("no such file or directory", place=given)
        for entry in found:
            real = os.path.realpath(entry)
            if real in seen:
                continue
            seen.add(real)
            if path.is_dir() and not is_log_name(entry.name):
                ignored.append(str(entry))
                continue
            if entry.suffix == ".pkl":
                reason = "a pickle is no log, and loading one runs the code in it"
                raise LogError(reason, place=str(entry))
            check_name(entry)
            logs.append(str(entry))
    return Expanded(tuple(logs), tuple(ignored))


def files_under(folder: Path, *, skip: frozenset[str] = frozenset()) -> list[Path]:
    """The files in a folder and in those below it, sorted.

    Links to folders are followed and each folder is entered once, under a name without links where it has
    one: neither a circle nor a second way to a folder changes what is found.

    Parameters
    ----------
    folder : Path
    skip : frozenset of str
        Real paths of folders that are not entered; `folder` itself always is.
    """
    entered = set(skip) - {os.path.realpath(folder)}
    found: list[Path] = []
    tops = [folder]
    while tops:
        links: list[Path] = []
        for top in tops:
            for place, inner, names in os.walk(top, onerror=_unreadable):  # which does not enter links
                real = os.path.realpath(place)
                if real in entered:
                    inner.clear()
                    continue
                entered.add(real)
                links += [Path(place, name) for name in inner if os.path.islink(os.path.join(place, name))]
                found += [Path(place, name) for name in names]
        tops = sorted(links)
    for entry in found:
        if is_log_name(entry.name) and not entry.exists():
            raise LogError(
                "a link that leads nowhere: fetch what it is to lead to, or remove it", place=str(entry)
            )
    return sorted(entry for entry in found if entry.is_file())


def _unreadable(error: OSError) -> None:
    raise LogError(
        f"the folder cannot be read ({error.strerror}): see to its rights, or name the folders wanted",
        place=str(error.filename),
    )


def check_name(path: Path) -> None:
    """LogError if a path is not UTF-8: each record of a dataset names its log, in texts that are."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise LogError(
            "its name is not UTF-8, and a dataset names the log of each record: rename it, or its folder",
            place=repr(str(path)),
        ) from None


def _is_unmeasured(entry: Path, named: Path) -> bool:
    """Whether a file lies in TenSet's folder of unmeasured programs, in or below the folder `named`."""
    folders = entry.relative_to(named).parts[:-1]
    return any(
        folder == UNMEASURED and named.joinpath(*folders[:depth], MEASURED).is_dir()
        for depth, folder in enumerate(folders)
    )


def is_log_name(name: str) -> bool:
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(LOG_SUFFIXES + ARCHIVES)
