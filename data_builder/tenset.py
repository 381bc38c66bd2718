"""Streaming reader of tuning logs: plain, gzip, zstd, standard input, directories.

Memory is bounded by the longest line that is accepted, whatever the size of the file or of its lines: a line
over the
limit is skipped without being held. What cannot be read becomes a `Line` with a `problem`, never an
exception, so
that one bad file does not stop the rest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wmsched.codecs.ansor import MAX_LINE_BYTES
from wmsched.errors import LogError

STDIN = "-"
LOG_SUFFIXES = (".json", ".jsonl", ".log")
COMPRESSED = (".gz", ".zst")
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
        Files (any name), directories (searched recursively for names ending in .json, .jsonl or .log, these
        compressed with .gz or .zst too) and `-` for standard input.
    skip : iterable of Path
        Files that are not logs even where a directory holds them, such as the workloads file.

    Raises
    ------
    LogError
        A path does not exist, or is a pickle.
    """
    seen = {os.path.realpath(path) for path in skip}
    logs: list[str] = []
    ignored: list[str] = []
    for given in map(str, paths):
        if given == STDIN:
            if STDIN not in logs:
                logs.append(STDIN)
            continue
        path = Path(given)
        if path.is_dir():
            found = sorted(entry for entry in path.rglob("*") if entry.is_file())
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
            logs.append(str(entry))
    return Expanded(tuple(logs), tuple(ignored))


def _is_log_name(name: str) -> bool:
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(LOG_SUFFIXES)


class LogReader:
    """The lines of one log.

    Iterate once; afterwards `lines` counts the lines seen and `sha256` is that of the file as it lies on
    disk.

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

    def __iter__(self) -> Iterator[Line]:
        try:
            raw: BinaryIO = sys.stdin.buffer if self.source == STDIN else open(self.source, "rb")  # noqa: SIM115
        except OSError as error:
            self.lines = 1
            yield Line(self.source, 1, b"", f"cannot be opened: {error.strerror or error}")
            return
        hashing = _Hashing(raw)
        try:
            yield from self._read(io.BufferedReader(hashing, _CHUNK))
            while hashing.read(
                _CHUNK
            ):  # a broken compressed stream stops early; the hash is of the whole file
                pass
            self.sha256 = hashing.digest.hexdigest()
        finally:
            if self.source != STDIN:
                raw.close()

    def _read(self, raw: io.BufferedReader) -> Iterator[Line]:
        number = 0
        try:
            stream = _decompressed(raw)
            while True:
                piece = stream.readline(self.max_line_bytes + 1)
                if not piece:
                    return
                number += 1
                self.lines = number
                if len(piece) > self.max_line_bytes and not piece.endswith(b"\n"):
                    length = len(piece)
                    while piece and not piece.endswith(b"\n"):
                        piece = stream.readline(_CHUNK)
                        length += len(piece)
                    length -= piece.endswith(b"\n")
                    reason = f"line of {length} bytes, over the limit of {self.max_line_bytes}"
                    yield Line(self.source, number, b"", reason)
                    continue
                data = piece.rstrip(b"\r\n")
                if not data or data[:1] in (b"#", b" "):  # TVM's reader skips these too
                    continue
                yield Line(self.source, number, data)
        except (OSError, EOFError, zlib.error) as error:
            self.lines = number + 1
            yield Line(
                self.source, number + 1, b"", f"the file is damaged from here on, the rest is lost: {error}"
            )


class _Hashing(io.RawIOBase):
    """Passes reads on and hashes them, so that a big file is read once."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw = raw
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self.raw.read(len(buffer))
        self.digest.update(data)
        buffer[: len(data)] = data
        return len(data)


def _decompressed(raw: io.BufferedReader) -> io.BufferedIOBase:
    """By content, not by name: published logs carry wrong suffixes, and standard input carries none."""
    magic = raw.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)
    if magic == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
    return raw
