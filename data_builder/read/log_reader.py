"""Streaming reader of tuning logs: plain, gzip, zstd, tar archives of these, standard input, directories.

Memory is bounded by the longest line that is accepted, whatever the size of the file or of its lines: a line
over the limit is skipped without being held. What cannot be read becomes a `Line` with a `problem`, never an
exception, so that one bad file does not stop the rest.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from data_builder.read.archive import is_tar, members
from data_builder.read.log_paths import STDIN, UNMEASURED, is_log_name
from data_builder.read.log_streams import (
    BOM,
    CHUNK_BYTES,
    DAMAGE,
    HashingStream,
    decompress,
    peek,
    unsupported_format,
)
from wmsched.schedules.steps import MAX_LINE_BYTES

#: Logs shrink 10- to 50-fold. A file that unpacks to more than the first many bytes and more than the second
#: many times its size was made to fill something.
BOMB_BYTES, BOMB_RATIO = 64 << 20, 300


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
        hashing = HashingStream(raw)
        try:
            yield from self._read(hashing)
            hashing.drain()  # a broken stream stops early; the hash is of the whole file
            self.sha256 = hashing.digest.hexdigest()
        finally:
            if self.source != STDIN:
                raw.close()

    def _read(self, raw: HashingStream) -> Iterator[Line]:
        try:
            stream = decompress(io.BufferedReader(raw, CHUNK_BYTES))
            head = peek(stream)
        except DAMAGE as error:
            self.lines = 1
            yield Line(self.source, 1, b"", f"the file is damaged from its start: {_message(error)}")
            return
        if problem := unsupported_format(head):
            self.lines = 1
            yield Line(self.source, 1, b"", problem)
            return
        if is_tar(head):
            yield from self._archive(stream, raw)
        else:
            lines = _Lines(self.source, self.max_line_bytes, lambda: raw.count)
            yield from lines.read(stream)
            self.lines, self.comments = lines.count, lines.comments

    def _archive(self, stream: BinaryIO, raw: HashingStream) -> Iterator[Line]:
        entries = members(stream)
        while True:
            try:
                member = next(entries, None)
            except DAMAGE as error:
                self.lines += 1
                yield Line(self.source, self.lines, b"", f"the archive is damaged: {_message(error)}")
                return
            if member is None:
                return
            if member.problem:
                self.lines += 1
                place = f"{member.name!r}: " if member.name else ""
                yield Line(self.source, self.lines, b"", f"{place}{member.problem}")
                continue
            name = f"{self.source}!{member.name}"
            if not is_log_name(member.name) or UNMEASURED in PurePosixPath(member.name).parts[:-1]:
                self.ignored.append(name)
                continue
            if name in self.members:
                self.lines += 1
                yield Line(self.source, self.lines, b"", f"{member.name!r}: a second member of this name")
                continue
            hashing = HashingStream(member.stream)
            # Against the size of the whole archive: its own compression may hide a bomb in a small member.
            lines = _Lines(name, self.max_line_bytes, lambda: raw.count)
            try:
                inner = decompress(io.BufferedReader(hashing, CHUNK_BYTES))
                if problem := unsupported_format(peek(inner), inside=True):
                    lines.count += 1
                    yield Line(name, 1, b"", problem)
                else:
                    yield from lines.read(inner)
            except DAMAGE as error:
                lines.count += 1
                yield Line(name, lines.number + 1, b"", f"damaged from its start: {_message(error)}")
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
            reason = f"the file is damaged from here on, the rest is lost: {_message(error)}"
            yield Line(self.source, self.number, b"", reason)

    def _too_long(self, stream: BinaryIO, piece: bytes) -> Line:
        length = len(piece)
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(CHUNK_BYTES)
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


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__
