"""The log reader: whatever the bytes are, each line comes out or is told as a problem."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builder.read.log_paths import STDIN, expand
from data_builder.read.log_reader import LogReader
from data_builder.read.spool import Spool, read_sources, read_spool, scan, spool_path, write_sources
from wmsched.base.errors import LogError

GOOD = [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def lines_of(path: Path, **options) -> list[tuple[int, bytes, str]]:
    return [(line.number, line.data, line.problem) for line in LogReader(str(path), **options)]


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(data)
    return buffer.getvalue().to_pybytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_each_compression_gives_the_same_lines(pack, tmp_path: Path) -> None:
    path = tmp_path / "log.json"  # by content: the name says nothing about it
    path.write_bytes(pack(b"\n".join(GOOD)))
    assert lines_of(path) == [(n, data, "") for n, data in enumerate(GOOD, start=1)]
    reader = LogReader(str(path))
    assert len(list(reader)) == 3
    assert reader.lines == 3
    assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_tvm_skips_is_skipped_and_keeps_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(b"# a comment\r\n" + GOOD[0] + b"\r\n\n {}\n" + GOOD[1])
    assert lines_of(path) == [(2, GOOD[0], ""), (5, GOOD[1], "")]


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_truncated_file_gives_what_it_holds_and_says_so(pack, tmp_path: Path) -> None:
    whole = pack(
        "".join(
            f'{{"n": {n}, "x": "{hashlib.sha256(b"%d" % n).hexdigest()}"}}\n' for n in range(5000)
        ).encode()
    )
    path = tmp_path / "log.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    found = lines_of(path)
    assert "damaged" in found[-1][2]
    assert len(found) > 500
    assert all(json.loads(data)["n"] == number - 1 for number, data, _ in found[:-1])


def test_garbage_after_a_gzip_header_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    path.write_bytes(b"\x1f\x8b" + b"\xff" * 100)
    assert [problem != "" for *_, problem in lines_of(path)] == [True]


def test_a_missing_file_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    found = lines_of(tmp_path / "gone.json")
    assert len(found) == 1 and "cannot be opened" in found[0][2]


def test_a_disk_that_stops_reading_is_a_problem_not_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        """Gives what it has once, and then says why there is no more."""

        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, "Input/output error")
            return super().read(size)

    data = b"\n".join(GOOD[:2]) + b"\n"
    monkeypatch.setattr("data_builder.read.log_reader.open", lambda *_: Failing(data), raising=False)
    reader = LogReader("disk.json")
    found = list(reader)
    assert [line.data for line in found] == [*GOOD[:2], b""]
    assert "Input/output error" in found[-1].problem
    assert reader.sha256 == hashlib.sha256(data).hexdigest()  # of what could be read


def test_a_line_at_the_limit_passes_and_one_over_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(b"x" * 10 + b"\n" + b"y" * 11 + b"\n" + b"z" * 200_000 + b"\n" + b"ok")
    found = lines_of(path, max_line_bytes=10)
    assert [(number, data) for number, data, _ in found] == [(1, b"x" * 10), (2, b""), (3, b""), (4, b"ok")]
    assert "11" in found[1][2] and "limit of 10" in found[1][2]


def test_a_huge_line_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(b"[" * (1 << 20))
        stream.write(b"\n" + GOOD[0])
    tracemalloc.start()
    found = lines_of(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [data for _, data, _ in found] == [b"", GOOD[0]]
    assert peak < 8 << 20  # of a line of 64 MiB


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(gzip.compress(b"\n".join(GOOD)))

    monkeypatch.setattr("sys.stdin", Stdin)
    assert [line.place for line in LogReader(STDIN)] == ["-:1", "-:2", "-:3"]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_exception(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "log"
    path.write_bytes(data)
    for line in LogReader(str(path), max_line_bytes=50):
        assert bool(line.data) != bool(line.problem)


def test_directories_are_searched_once_each_in_order(tmp_path: Path) -> None:
    for name in ("b.json", "a.json.gz", "sub/c.json.zst", "sub/d.log", "notes.txt", "all_tasks.pkl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "again.json").symlink_to(tmp_path / "b.json")
    workloads = tmp_path / "workloads.json.gz"
    workloads.touch()
    found = expand([tmp_path, tmp_path / "b.json", STDIN, STDIN], skip=[workloads])
    names = [Path(path).name for path in found.logs]
    assert names == ["a.json.gz", "again.json", "c.json.zst", "d.log", "-"]  # again.json is b.json
    assert sorted(Path(path).name for path in found.ignored) == ["all_tasks.pkl", "notes.txt"]


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_unmeasured_programs_are_left_out_at_any_depth(tmp_path: Path) -> None:
    kept = ["dataset_cpu/measure_records/a/x.json", "other/to_measure_programs/y.json"]
    left = "dataset_cpu/to_measure_programs/a/x.json"
    touch(tmp_path, *kept, left)
    found = expand([tmp_path])
    assert found.logs == tuple(str(tmp_path / name) for name in kept)  # the other has no records beside it
    assert found.ignored == (str(tmp_path / left),)
    named = tmp_path / "dataset_cpu" / "to_measure_programs"
    assert expand([named]).logs == (str(tmp_path / left),)


def test_links_to_folders_are_followed_and_no_folder_is_entered_twice(tmp_path: Path) -> None:
    root, disk = tmp_path / "tenset", tmp_path / "disk"
    touch(root, "own/b.json", "to_measure_programs/a.json")
    touch(disk, "part/a.json")
    (root / "measure_records").symlink_to(disk, target_is_directory=True)
    (root / "a_second_way").symlink_to(root / "own", target_is_directory=True)
    (disk / "round").symlink_to(disk, target_is_directory=True)
    (disk / "gone").symlink_to(tmp_path / "nowhere")
    found = expand([root])
    assert found.logs == (str(root / "measure_records" / "part" / "a.json"), str(root / "own" / "b.json"))
    assert found.ignored == (str(root / "to_measure_programs" / "a.json"),)


def test_a_folder_to_skip_is_not_entered_unless_it_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.json", "ds/manifest.json", "ds/.build/scan.json")
    found = expand([tmp_path], skip=[tmp_path / "ds"])
    assert found.logs == (str(tmp_path / "a.json"),) and found.ignored == ()
    assert len(expand([tmp_path / "ds"], skip=[tmp_path / "ds"]).logs) == 2


def test_a_named_file_of_any_name_is_a_log_but_no_pickle_is(tmp_path: Path) -> None:
    (tmp_path / "records").touch()
    (tmp_path / "x.pkl").touch()
    assert expand([tmp_path / "records"]).logs == (str(tmp_path / "records"),)
    with pytest.raises(LogError, match=r"x\.pkl: a pickle is no log"):
        expand([tmp_path / "x.pkl"])
    with pytest.raises(LogError, match=r"gone: no such file"):
        expand([tmp_path / "gone"])


def test_a_name_that_no_dataset_can_hold_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.json")
    odd.touch()
    for named in (odd, tmp_path):
        with pytest.raises(LogError, match=r"caf\\udce9\.json': its name is not UTF-8.*rename it"):
            expand([named])


def test_a_spool_groups_lines_and_keeps_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, buffer_bytes=64)  # flushed many times: many gzip members
    for number in range(100):
        spool.add(f"key{number % 3}", "llvm", (2, 64), number % 2, number, b"line \xff %d" % number)
    spool.flush()
    assert sorted(entry["key"] for entry in spool.workloads.values()) == ["key0", "key1", "key2"]
    for workload_id, entry in spool.workloads.items():
        first = int(entry["key"][-1])
        numbers = range(first, 100, 3)
        assert entry["count"] == len(numbers)
        assert list(read_spool(tmp_path, workload_id)) == [(n % 2, n, b"line \xff %d" % n) for n in numbers]
        assert spool_path(tmp_path, workload_id).is_file()


def test_a_worker_that_outlives_a_build_reads_the_names_of_the_next(tmp_path: Path) -> None:
    write_sources(tmp_path, ["a.json"])
    first = read_sources(tmp_path)
    assert first == ("a.json",) and read_sources(tmp_path) is first  # read once
    write_sources(tmp_path, ["b.json"])
    assert read_sources(tmp_path) == ("b.json",)


HOSTILE = {
    "nesting": b'{"i":' + b"[" * 100_000,
    "huge integer": b'{"i":[["k","llvm"],[[],[["SP",1,0,'
    + b"9" * 5000
    + b',[1],1]]]],"r":[[1.0],0,1.0,1],"v":"v0.6"}',
    "not a number": b'{"i":[["k","llvm"],[[],[]]],"r":[[NaN],0,1.0,1],"v":"v0.6"}',
    "bad text": b'{"i":[["k\xff","llvm"],[[],[]]],"r":[[1.0],0,1.0,1],"v":"v0.6"}',
    "foreign": b'{"timestamp": 1, "level": "info"}',
    "a list": b"[1, 2, 3]",
    "half a line": b'{"i":[["k","llvm"],[[],[["SP",1',
    "deep field": b'{"i":[["k","llvm"],[[],[["SP",'
    + b"[" * 1000
    + b"]" * 1000
    + b',0,16,[1],1]]]],"r":[[1.0],0,1.0,1],"v":"v0.6"}',
    "unknown step": b'{"i":[["k","llvm"],[[],[["ZZ",1]]]],"r":[[1.0],0,1.0,1],"v":"v0.6"}',
    "html": b"<html>404</html>",
    "zeros": b"\x00" * 64,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_refused_with_its_place_and_the_rest_is_kept(name: str, tmp_path: Path) -> None:
    good = b'{"i":[["k","llvm"],[[],[]]],"r":[[1.0],0,1.0,1],"v":"v0.6"}'
    path = tmp_path / "log.json"
    path.write_bytes(good + b"\n" + HOSTILE[name] + b"\n" + good + b"\n")
    told: list[str] = []
    result = scan((str(path),), tmp_path / "scratch", on_problem=told.append)
    assert len(told) == 1 and told[0].startswith(f"{path}:2: ")
    assert len(told[0]) < 500 + len(str(path))  # a reason, not the line
    assert result["sources"][0]["bad"] == 1 and result["sources"][0]["lines"] == 3
    assert [entry["count"] for entry in result["workloads"].values()] == [2]


@pytest.mark.parametrize(
    ("head", "what"),
    [(b"PK\x03\x04", "a zip archive"), (b"\xfd7zXZ\x00", "xz"), (b"BZh91", "bzip2"), (b"7z\xbc\xaf'", "7z")],
)
def test_what_is_packed_otherwise_is_one_problem_that_says_so(head: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(head + b"\n\x00\x01\n" * 500)
    ((number, data, problem),) = lines_of(path)
    assert (number, data) == (1, b"") and what in problem and "unpack it first" in problem


def test_texts_of_windows_are_read_or_named(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(GOOD) + b"\r\n")
    assert [data for _, data, _ in lines_of(path)] == GOOD
    path.write_bytes("\ufeff{}\n".encode("utf-16-le"))
    ((_, _, problem),) = lines_of(path)
    assert "UTF-16" in problem and "save it as UTF-8" in problem


def test_members_of_a_tar_that_are_no_logs_are_told(tmp_path: Path) -> None:
    import tarfile

    inner = tmp_path / "inner.tar.gz"
    (tmp_path / "a.json").write_bytes(GOOD[0] + b"\n")
    with tarfile.open(inner, "w:gz") as archive:
        archive.add(tmp_path / "a.json", "a.json")
    path = tmp_path / "all.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(tmp_path / "a.json", "measure_records/a.json")
        archive.add(tmp_path / "a.json", "to_measure_programs/a.json")
        archive.add(tmp_path / "a.json", "notes.txt")
        archive.add(inner, "more.tar.gz")
    reader = LogReader(str(path))
    found = {line.source.partition("!")[2]: (line.data, line.problem) for line in reader}
    assert found["measure_records/a.json"] == (GOOD[0], "")
    assert "archive within an archive" in found["more.tar.gz"][1] and len(found) == 2
    assert reader.ignored == [f"{path}!to_measure_programs/a.json", f"{path}!notes.txt"]


def test_a_folder_that_cannot_be_read_and_a_link_that_leads_nowhere_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs" / "closed").mkdir(parents=True)
    (tmp_path / "logs" / "a.json").write_bytes(GOOD[0] + b"\n")
    before = os.scandir

    def scandir(path="."):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return before(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(LogError, match=r"closed.*cannot be read \(Permission denied"):
        expand([tmp_path / "logs"])
    monkeypatch.undo()
    (tmp_path / "logs" / "b.json").symlink_to(tmp_path / "gone.json")
    with pytest.raises(LogError, match=r"b\.json.*leads nowhere"):
        expand([tmp_path / "logs"])
