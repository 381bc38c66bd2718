"""Members of a tar archive as streams, read in one pass and in bounded memory.

Nothing is ever written under a member's name, so a name can do no harm beyond the label it becomes; names
that point out of the archive are refused all the same, as a sign of what the archive is. The standard
library's reader takes the size of an extended header on trust and reads it into memory, so headers are read
here.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 512
MAX_NAME_BYTES = 4096
#: Extended headers hold a path and times; one larger than this is an attack on the reader's memory.
MAX_HEADER_BYTES = 1 << 16
MAX_MEMBERS = 100_000
_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file of an archive, or what is wrong with an entry (`problem`; then `stream` is empty)."""

    name: str
    stream: BinaryIO
    problem: str = ""


def is_tar(head: bytes) -> bool:
    """Whether the first 512 bytes of a file are a tar header, by its magic and its checksum."""
    return len(head) >= BLOCK and head[257:262] == b"ustar" and _checksum_holds(head[:BLOCK])


def members(stream: BinaryIO) -> Iterator[Member]:
    """The regular files of the archive in `stream`, in order; each is read before the next is asked for.

    Links, devices, names that leave the archive and a damaged rest come out as members with a `problem`.
    """
    long_name = ""
    for _ in range(MAX_MEMBERS):
        head = _exactly(stream, BLOCK)
        if not head.strip(b"\0"):  # the end, or an archive cut off between two members
            return
        if not is_tar(head):
            yield Member("", io.BytesIO(), "the archive is damaged from here on, the rest is lost")
            return
        size, kind = _number(head[124:136]), head[156:157]
        if size is None:
            yield Member("", io.BytesIO(), "a member's size is no number; the rest of the archive is lost")
            return
        if kind in (b"L", b"x", b"K", b"g"):
            if size > MAX_HEADER_BYTES:
                yield Member("", io.BytesIO(), f"an extended header of {size} bytes; the rest is refused")
                return
            data = _exactly(stream, _padded(size))[:size]
            if kind == b"L":
                long_name = data.rstrip(b"\0").decode("utf-8", "replace")
            elif kind == b"x":
                long_name = _path_of(data) or long_name
            continue
        name, long_name = long_name or _ustar_name(head), ""
        body = _Body(stream, size)
        if kind in (b"0", b"\0", b"7"):
            problem = _refused(name)
            if problem:
                yield Member(shown(name)[-200:], io.BytesIO(), problem)
            else:
                yield Member(shown(name), io.BufferedReader(body))
        elif kind in _KINDS:
            yield Member(shown(name)[-200:], io.BytesIO(), f"{_KINDS[kind]}, not a file: refused")
        body.skip(_padded(size))
    yield Member("", io.BytesIO(), f"more than {MAX_MEMBERS} members; the rest is refused")


def shown(name: str) -> str:
    """The name as it can be printed: without control characters."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _refused(name: str) -> str:
    if len(name) > MAX_NAME_BYTES:
        return f"a name of {len(name)} characters: refused"
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        return "the name leads out of the archive: refused"
    return ""


class _Body(io.RawIOBase):
    """The bytes of one member."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.stream = stream
        self.left = size
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self.stream.read(min(len(buffer), self.left))
        if not data and self.left:
            raise EOFError("the archive ends within this member")
        self.left -= len(data)
        self.taken += len(data)
        buffer[: len(data)] = data
        return len(data)

    def skip(self, whole: int) -> None:
        """Go to the end of the member's last block."""
        left = whole - self.taken
        while left > 0 and (data := self.stream.read(min(left, 1 << 16))):
            left -= len(data)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0 and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _number(field: bytes) -> int | None:
    """A size: octal digits, or base 256 where the first bit is set."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


def _checksum_holds(head: bytes) -> bool:
    said = _number(head[148:156])
    return said == sum(head) - sum(head[148:156]) + 8 * ord(" ")


def _ustar_name(head: bytes) -> str:
    name = head[:100].rstrip(b"\0")
    prefix = head[345:500].rstrip(b"\0") if head[257:265] == b"ustar\x0000" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "replace")


def _path_of(data: bytes) -> str:
    """The `path` record of a pax header: `length key=value\\n` each."""
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not 0 < int(length[:9]) <= len(data):
            return ""
        record, data = data[len(length) + 1 : int(length[:9])], data[int(length[:9]) :]
        key, _, value = record.rstrip(b"\n").partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "replace")
    return ""
