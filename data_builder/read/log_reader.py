"""Streaming reader of tuning logs: plain, gzip, zstd, tar archives of these, standard input, directories.

Memory is bounded by the longest line that is accepted, whatever the size of the file or of its lines: a line
over the limit is skipped without being held. What cannot be read becomes a `Line` with a `problem`, never an
exception, so that one bad file does not stop the rest.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from data_builder.read.archive import BLOCK, is_tar, members
from wmsched.base.errors import LogError
from wmsched.schedules.steps import MAX_LINE_BYTES

STDIN = "-"
LOG_SUFFIXES = (".json", ".jsonl", ".log")
ARCHIVES = (".tar", ".tgz")
COMPRESSED = (".gz", ".zst")
#: How files begin that are packed in another way, and what they are.
PACKED = {
    b"PK\x03\x04": "a zip archive",
    b"\xfd7zXZ\x00": "packed by xz",
    b"BZh": "packed by bzip2",
    b"7z\xbc\xaf": "a 7z archive",
}
UNPACK = "unpack it first, or pack it as .gz, .zst or .tar"
BOM, UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
#: TenSet's folder of logs, and the one beside it of programs that nobody has measured yet.
MEASURED, UNMEASURED = "measure_records", "to_measure_programs"
#: Logs shrink 10- to 50-fold. A file that unpacks to more than the first many bytes and more than the second
#: many times its size was made to fill something.
BOMB_BYTES, BOMB_RATIO = 64 << 20, 300
#: What the readers of compressed files raise on damaged ones (pyarrow's errors are OSErrors or ValueErrors).
DAMAGE = (OSError, EOFError, ValueError, zlib.error)
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, or what is wrong with it (`problem`; then `data` is empty)."""

    source: str
    number: int
    data: bytes
    problem: str = ""

    @property
    def place(self) -> str:
        """`file:line`, as error messages name it."""
        return f"{self.source}:{self.number}"


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
            if path.is_dir() and not _is_log_name(entry.name):
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
        if _is_log_name(entry.name) and not entry.exists():
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


def _is_log_name(name: str) -> bool:
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(LOG_SUFFIXES + ARCHIVES)


class Counts(NamedTuple):
    """What a log held: lines yielded, comments and blank lines, and the hash of its bytes."""

    lines: int
    comments: int
    sha256: str


class LogReader:
    """The lines of one log, or of the logs in a tar archive.

    Iterate once; afterwards `lines` counts the lines yielded, `comments` the blank ones and comments, and
    `sha256` is that of the file as it lies on disk, as far as it can be read. In an archive a line's source
    is `archive!member`; `members` has these of each, and `lines` counts what belongs to none. `ignored` are
    the members whose names are not those of logs, and TenSet's programs that are yet to be measured.

    Parameters
    ----------
    source : str
        Path of a log, or `-`.
    max_line_bytes : int
        Longer lines are skipped and yielded as problems.
    """

    def __init__(self, source: str, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.source = source
        self.max_line_bytes = max_line_bytes
        self.lines = 0
        self.sha256 = ""
        self.comments = 0
        self.members: dict[str, Counts] = {}
        self.ignored: list[str] = []

    def __iter__(self) -> Iterator[Line]:
        try:
            raw: BinaryIO = sys.stdin.buffer if self.source == STDIN else open(self.source, "rb")  # noqa: SIM115
        except OSError as error:
            self.lines = 1
            yield Line(self.source, 1, b"", f"cannot be opened: {error.strerror or error}")
            return
        hashing = _Hashing(raw)
        try:
            yield from self._read(hashing)
            hashing.drain()  # a broken stream stops early; the hash is of the whole file
            self.sha256 = hashing.digest.hexdigest()
        finally:
            if self.source != STDIN:
                raw.close()

    def _read(self, raw: _Hashing) -> Iterator[Line]:
        try:
            stream = _decompressed(io.BufferedReader(raw, _CHUNK))
            head = _peek(stream)
        except DAMAGE as error:
            self.lines = 1
            yield Line(self.source, 1, b"", f"the file is damaged from its start: {_said(error)}")
            return
        if problem := _foreign(head):
            self.lines = 1
            yield Line(self.source, 1, b"", problem)
            return
        if is_tar(head):
            yield from self._archive(stream, raw)
        else:
            lines = _Lines(self.source, self.max_line_bytes, lambda: raw.count)
            yield from lines.read(stream)
            self.lines, self.comments = lines.count, lines.comments

    def _archive(self, stream: BinaryIO, raw: _Hashing) -> Iterator[Line]:
        entries = members(stream)
        while True:
            try:
                member = next(entries, None)
            except DAMAGE as error:
                self.lines += 1
                yield Line(self.source, self.lines, b"", f"the archive is damaged: {_said(error)}")
                return
            if member is None:
                return
            if member.problem:
                self.lines += 1
                place = f"{member.name!r}: " if member.name else ""
                yield Line(self.source, self.lines, b"", f"{place}{member.problem}")
                continue
            name = f"{self.source}!{member.name}"
            if not _is_log_name(member.name) or UNMEASURED in PurePosixPath(member.name).parts[:-1]:
                self.ignored.append(name)
                continue
            if name in self.members:
                self.lines += 1
                yield Line(self.source, self.lines, b"", f"{member.name!r}: a second member of this name")
                continue
            hashing = _Hashing(member.stream)
            # Against the size of the whole archive: its own compression may hide a bomb in a small member.
            lines = _Lines(name, self.max_line_bytes, lambda: raw.count)
            try:
                inner = _decompressed(io.BufferedReader(hashing, _CHUNK))
                if problem := _foreign(_peek(inner), inside=True):
                    lines.count += 1
                    yield Line(name, 1, b"", problem)
                else:
                    yield from lines.read(inner)
            except DAMAGE as error:
                lines.count += 1
                yield Line(name, lines.number + 1, b"", f"damaged from its start: {_said(error)}")
            hashing.drain()  # what damage there is the next round meets
            self.members[name] = Counts(lines.count, lines.comments, hashing.digest.hexdigest())


class _Lines:
    """Cuts one stream into lines and watches its size; `count` is of those that are yielded."""

    def __init__(self, source: str, max_line_bytes: int, stored: Callable[[], int]) -> None:
        self.source = source
        self.most = max_line_bytes
        self.stored = stored
        self.number = 0
        self.count = 0
        self.comments = 0
        self.bytes = 0

    def read(self, stream: BinaryIO) -> Iterator[Line]:
        """The lines that are none of TVM's comments; the last may tell why there are no more."""
        for line in self._cut(stream):
            self.count += 1
            yield line

    def _cut(self, stream: BinaryIO) -> Iterator[Line]:
        most, watch = self.most, BOMB_BYTES
        try:
            while piece := stream.readline(most + 1):
                self.number += 1
                self.bytes += len(piece)
                if len(piece) > most and not piece.endswith(b"\n"):
                    yield self._too_long(stream, piece)
                else:
                    data = piece.rstrip(b"\r\n")
                    if self.number == 1:
                        data = data.removeprefix(BOM)
                    if data and data[:1] not in (b"#", b" "):  # TVM's reader skips these too
                        yield Line(self.source, self.number, data)
                    else:
                        self.comments += 1
                if self.bytes > watch:
                    self._check_bomb()
                    watch = self.bytes + (1 << 20)
        except _BombError as error:
            self.number += 1
            yield Line(self.source, self.number, b"", str(error))
        except DAMAGE as error:
            self.number += 1
            reason = f"the file is damaged from here on, the rest is lost: {_said(error)}"
            yield Line(self.source, self.number, b"", reason)

    def _too_long(self, stream: BinaryIO, piece: bytes) -> Line:
        length = len(piece)
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(_CHUNK)
            length += len(piece)
            self.bytes += len(piece)
            if self.bytes > BOMB_BYTES:
                self._check_bomb()
        length -= piece.endswith(b"\n")
        reason = f"line of {length} bytes, over the limit of {self.most}"
        return Line(self.source, self.number, b"", reason)

    def _check_bomb(self) -> None:
        stored = max(1, self.stored())
        if self.bytes > BOMB_BYTES and self.bytes > BOMB_RATIO * stored:
            raise _BombError(
                f"it unpacks to more than {BOMB_RATIO} times its size ({self.bytes} bytes of {stored} so "
                "far): a decompression bomb, the rest is refused"
            )


class _BombError(Exception):
    """The stream grows beyond what a log can."""


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


class _Hashing(io.RawIOBase):
    """Passes reads on and hashes them, so that a big file is read once."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw
        self.digest = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self.raw.read(len(buffer))
        self.digest.update(data)
        self.count += len(data)
        buffer[: len(data)] = data
        return len(data)

    def drain(self) -> None:
        """Hash the rest, up to its end or to what cannot be read of it."""
        with contextlib.suppress(*DAMAGE):
            while self.read(_CHUNK):
                pass


def _decompressed(raw: io.BufferedReader) -> BinaryIO:
    """By content, not by name: published logs carry wrong suffixes, and standard input carries none."""
    magic = raw.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if magic == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"), _CHUNK)
    return raw


def _foreign(head: bytes, *, inside: bool = False) -> str:
    """What is wrong with a file that begins so, if it is none of the kinds that are read."""
    packed = next((what for magic, what in PACKED.items() if head.startswith(magic)), "")
    if packed:
        return f"{packed}, which is not read: {UNPACK}"
    if head.startswith(UTF16):
        return "UTF-16, as PowerShell's > writes: save it as UTF-8"
    return f"an archive within an archive, which is not read: {UNPACK}" if inside and is_tar(head) else ""


def _peek(stream: BinaryIO) -> bytes:
    return stream.peek(BLOCK) if isinstance(stream, (io.BufferedReader, gzip.GzipFile)) else b""
