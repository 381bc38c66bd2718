"""Groups the lines of all logs by workload, on disk.

Public logs mix workloads in one file and spread one workload over many, and a whole collection does not fit
in memory; one compressed spool file a workload does the grouping. A file is appended to a block at a time, so
no file need be kept open.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from data_builder.read.log_reader import Counts, LogReader
from wmsched.base.errors import LogError
from wmsched.learn.data.dataset import group_id
from wmsched.schedules.steps import parse_record

#: Lines held in memory over all workloads before they are written. A log of ten thousand lines fills it.
BUFFER_BYTES = 8 << 20
#: Rank groups of one build: a hostile log could name a new workload in every line. TenSet has below 20,000.
MAX_GROUPS = 200_000


_CODEC = pa.Codec("zstd", compression_level=1)  # three times as fast as gzip at its fastest
_HEAD = struct.Struct("<QQ")  # of a block: bytes as stored, bytes unpacked
_BLOCK_BYTES = 1 << 20


def _blocks(lines: list[bytes]) -> Iterator[bytes]:
    """The lines joined to blocks of about a megabyte: what a reader holds at a time."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def spool_path(scratch: Path, workload_id: str) -> Path:
    """The spool file of a workload."""
    return scratch / "spool" / f"{workload_id}.spool"


class Spool:
    """Appends lines to spool files through one bounded buffer."""

    def __init__(self, scratch: Path, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.scratch = scratch
        self.buffer_bytes = buffer_bytes
        self.workloads: dict[str, dict[str, Any]] = {}
        self._ids: dict[tuple[str, str, tuple[int, ...]], str] = {}
        self._pending: dict[str, list[bytes]] = {}
        self._size = 0
        (scratch / "spool").mkdir(parents=True, exist_ok=True)

    def add(
        self, key: str, target: str, hardware: tuple[int, ...], source_index: int, number: int, data: bytes
    ) -> None:
        """Keep one line for the rank group of this key on this machine.

        Raises
        ------
        LogError
            There are `MAX_GROUPS` others already.
        """
        machine = (key, target, hardware)
        workload_id = self._ids.get(machine)
        if workload_id is None:
            if len(self._ids) >= MAX_GROUPS:
                raise LogError(
                    f"the {MAX_GROUPS + 1}th workload and machine: build the logs in parts, then merge"
                )
            workload_id = self._ids[machine] = group_id(key, target, hardware)
            self.workloads[workload_id] = {"key": key, "count": 0}
        self.workloads[workload_id]["count"] += 1
        line = b"%d %d %s\n" % (source_index, number, data)
        self._pending.setdefault(workload_id, []).append(line)
        self._size += len(line)
        if self._size >= self.buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        for workload_id, lines in self._pending.items():
            with open(spool_path(self.scratch, workload_id), "ab") as stream:
                for block in _blocks(lines):
                    packed = _CODEC.compress(block, asbytes=True)
                    stream.write(_HEAD.pack(len(packed), len(block)) + packed)
        self._pending.clear()
        self._size = 0


def read_spool(scratch: Path, workload_id: str) -> Iterator[tuple[int, int, bytes]]:
    """(source index, line number, line) of each line of a workload, in the order of the sources."""
    with open(spool_path(scratch, workload_id), "rb") as stream:
        while head := stream.read(_HEAD.size):
            packed, size = _HEAD.unpack(head)
            block = _CODEC.decompress(stream.read(packed), decompressed_size=size, asbytes=True)
            for line in block.split(b"\n")[:-1]:
                source_index, number, data = line.split(b" ", 2)
                yield int(source_index), int(number), data


def write_sources(scratch: Path, sources: Sequence[str]) -> None:
    """Keep the logs' names for the workers; a line in the spool has the place of its log in this list."""
    from data_builder.base.store import write_json

    write_json(scratch / "sources.json", list(sources))


def read_sources(scratch: Path) -> tuple[str, ...]:
    """What `write_sources` kept: read once a worker, for one list a job would be square in the logs."""
    path = scratch / "sources.json"
    file = path.stat()
    return _sources(path, file.st_ino, file.st_mtime_ns, file.st_size)


@lru_cache(maxsize=1)
def _sources(path: Path, *written: int) -> tuple[str, ...]:
    # By what tells a file from the one before it: a worker of a cluster outlives builds in the same folder.
    return tuple(orjson.loads(path.read_bytes()))


def scan(
    sources: tuple[str, ...],
    scratch: Path,
    *,
    exclude: frozenset[str] = frozenset(),
    on_problem: Callable[[str], None],
    on_source: Callable[[str], None] = lambda source: None,
) -> dict[str, Any]:
    """Read every log once and spool its good lines.

    Parameters
    ----------
    sources : tuple of str
        Logs, as `log_paths.expand` lists them.
    scratch : Path
        Directory of the spool.
    exclude : frozenset of str
        Workload keys whose lines are counted and left out.
    on_problem : callable (text) -> None
        Told `file:line: reason` for each bad line.
    on_source : callable (source) -> None
        Told each source when it has been read.

    Returns
    -------
    dict
        `sources`: path, sha256, lines, comments, bad and excluded of each; `workloads`: key and count by
        workload id.
    """
    spool = Spool(scratch)
    found: dict[str, dict[str, Any]] = {}  # in the order met; a record's source is its place in it
    places: dict[str, int] = {}
    for source in sources:
        reader = LogReader(source)
        named, index = "", 0
        for line in reader:
            if line.source != named:
                named = line.source
                counts = found.setdefault(named, {"path": named, "bad": 0, "excluded": 0})
                index = places.setdefault(named, len(places))
            reason = line.problem
            if not reason:
                try:
                    record = parse_record(line.data)
                    if record.workload_key in exclude:
                        counts["excluded"] += 1
                    else:
                        machine = (record.target, record.hardware)
                        spool.add(record.workload_key, *machine, index, line.number, line.data)
                except LogError as error:
                    reason = error.reason
            if reason:
                counts["bad"] += 1
                on_problem(f"{line.place}: {reason}")
        if reader.ignored:
            on_problem(f"{source}: {len(reader.ignored)} members left out, the first {reader.ignored[0]}")
        counted = dict(reader.members)
        if reader.lines or not counted:
            counted[source] = Counts(reader.lines, reader.comments, reader.sha256)
        for path, count in counted.items():
            places.setdefault(path, len(places))
            entry = found.setdefault(path, {"path": path, "bad": 0, "excluded": 0})
            entry |= count._asdict()
        on_source(source)
    spool.flush()
    return {"sources": list(found.values()), "workloads": spool.workloads}


def write_scan(path: Path, result: dict[str, Any]) -> None:
    """Keep the result of `scan`; its presence says that the spool is complete."""
    from data_builder.base.store import write_json

    write_json(path, result)


def read_scan(path: Path) -> dict[str, Any]:
    """What `write_scan` kept."""
    result: dict[str, Any] = orjson.loads(path.read_bytes())
    return result
