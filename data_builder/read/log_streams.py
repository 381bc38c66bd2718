"""Byte streams of log files: hashed while read, decompressed by content, unsupported formats named."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import zlib
from typing import BinaryIO

from data_builder.read.archive import BLOCK, is_tar

#: How files begin that are packed in another way, and what they are.
PACKED = {
    b"PK\x03\x04": "a zip archive",
    b"\xfd7zXZ\x00": "packed by xz",
    b"BZh": "packed by bzip2",
    b"7z\xbc\xaf": "a 7z archive",
}
UNPACK = "unpack it first, or pack it as .gz, .zst or .tar"
BOM, UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
#: What the readers of compressed files raise on damaged ones (pyarrow's errors are OSErrors or ValueErrors).
DAMAGE = (OSError, EOFError, ValueError, zlib.error)
CHUNK_BYTES = 1 << 16  # of one read


class HashingStream(io.RawIOBase):
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
            while self.read(CHUNK_BYTES):
                pass


def decompress(raw: io.BufferedReader) -> BinaryIO:
    """By content, not by name: published logs carry wrong suffixes, and standard input carries none."""
    magic = raw.peek(4)[:4]
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if magic == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"), CHUNK_BYTES)
    return raw


def unsupported_format(head: bytes, *, inside: bool = False) -> str:
    """What is wrong with a file that begins so, if it is none of the kinds that are read."""
    packed = next((what for magic, what in PACKED.items() if head.startswith(magic)), "")
    if packed:
        return f"{packed}, which is not read: {UNPACK}"
    if head.startswith(UTF16):
        return "UTF-16, as PowerShell's > writes: save it as UTF-8"
    return f"an archive within an archive, which is not read: {UNPACK}" if inside and is_tar(head) else ""


def peek(stream: BinaryIO) -> bytes:
    return stream.peek(BLOCK) if isinstance(stream, (io.BufferedReader, gzip.GzipFile)) else b""
