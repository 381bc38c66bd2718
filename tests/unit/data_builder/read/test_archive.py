"""Tar archives of logs: read in one pass, nothing of them ever touches the disk, hostile ones are refused."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from dataset_files import quiet, record_line
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builder.build.build import build
from data_builder.build.plan import BuildOptions
from data_builder.derive.validate import problems
from data_builder.read.log_reader import BOMB_RATIO, LogReader
from data_builder.read.spool import scan
from wmsched.learn.data.dataset import Dataset


def pack(entries: dict[str, bytes], *, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def read(path: Path) -> tuple[list[tuple[str, int, bytes]], list[str], LogReader]:
    reader = LogReader(str(path))
    lines = list(reader)
    good = [(line.source.partition("!")[2], line.number, line.data) for line in lines if not line.problem]
    return (
        good,
        [f"{line.source.rpartition('/')[2]}: {line.problem}" for line in lines if line.problem],
        reader,
    )


LONG = "d/" * 120 + "long.json"  # needs an extended header


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("squeeze", [bytes, gzip.compress], ids=["tar", "tar.gz"])
def test_the_logs_of_an_archive_are_its_members(form: int, squeeze, tmp_path: Path) -> None:
    long = LONG if form != tarfile.USTAR_FORMAT else "x/long.json"
    entries = {
        "measure_records/a.json": b"a1\n# comment\na2", "notes.txt": b"no log", long: b"b1\n",
        "network_info/all_tasks.pkl": b"\x80\x04", "c.json.gz": gzip.compress(b"c1\nc2\n"), "empty.json": b"",
    }  # fmt: skip
    path = tmp_path / "logs.tar"
    path.write_bytes(squeeze(pack(entries, form=form)))
    good, bad, reader = read(path)
    assert good == [
        ("measure_records/a.json", 1, b"a1"), ("measure_records/a.json", 3, b"a2"), (long, 1, b"b1"),
        ("c.json.gz", 1, b"c1"), ("c.json.gz", 2, b"c2"),
    ]  # fmt: skip
    assert bad == [] and reader.lines == 0
    assert [count.lines for count in reader.members.values()] == [2, 1, 2, 0]


def link(kind: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("passwd.json")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    return buffer.getvalue()


def huge_header() -> bytes:
    whole = bytearray(pack({"a" * 300 + ".json": b"x"}, form=tarfile.GNU_FORMAT))
    whole[124:136] = b"77777777777\0"
    total = sum(whole[:512]) - sum(whole[148:156]) + 8 * 32
    whole[148:156] = b"%06o\0 " % total
    return bytes(whole)


HOSTILE = {
    "traversal": (pack({"../../etc/cron.d/x.json": b"{}"}), "leads out of the archive"),
    "absolute": (pack({"/etc/passwd.json": b"{}"}), "leads out of the archive"),
    "windows": (pack({"..\\..\\x.json": b"{}"}), "leads out of the archive"),
    "twice": (pack({"a.json": b"x"})[:1024] + pack({"a.json": b"y"}), "a second member of this name"),
    "symbolic link": (link(tarfile.SYMTYPE), "a symbolic link, not a file"),
    "hard link": (link(tarfile.LNKTYPE), "a hard link, not a file"),
    "device": (link(tarfile.CHRTYPE), "a device, not a file"),
    "header of gigabytes": (huge_header(), "an extended header of 8589934591 bytes"),
    "cut off": (pack({"a.json": b"x" * 5000})[:2000], "ends within this member"),
    "garbage behind": (pack({"a.json": b"x"})[:1024] + b"\xff" * 512, "damaged from here on"),
    "control characters": (pack({"../\x1b[2J\n.json": b""}), r"../?[2J?.json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    data, says = HOSTILE[name]
    path = tmp_path / "logs.tar"
    path.write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    tracemalloc.start()
    good, bad, reader = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(bad) == 1 and says in bad[0], bad
    assert reader.lines + sum(count.lines for count in reader.members.values()) == len(good) + len(bad)
    assert sorted(tmp_path.rglob("*")) == before
    assert peak < 4 << 20


@settings(max_examples=60)
@given(data=st.data())
def test_a_mangled_archive_is_read_without_an_exception(tmp_path_factory, data) -> None:
    whole = bytearray(pack({"a.json": b"x\ny\n" * 200, "b.json.gz": gzip.compress(b"z\n" * 99), LONG: b"w"}))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("tar") / "x.tar"
    path.write_bytes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    reader = LogReader(str(path))
    lines = list(reader)
    assert reader.lines + sum(count.lines for count in reader.members.values()) == len(lines)


@pytest.mark.parametrize("where", ["alone", "in an archive"])
@pytest.mark.parametrize("filling", [b"\n", b"[", b'{"a": 1}\n'])
def test_a_decompression_bomb_is_refused(
    where: str, filling: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_builder.read.log_reader.BOMB_BYTES", 2 << 20)
    bomb = gzip.compress(filling * ((16 << 20) // len(filling)), 6)
    path = tmp_path / "logs.json"
    path.write_bytes(bomb if where == "alone" else pack({"a.json.gz": bomb}))
    found, told = 0, []
    for line in LogReader(str(path)):
        found += len(line.data)
        if line.problem:
            told.append(line.problem)
    assert "decompression bomb" in told[-1] and str(BOMB_RATIO) in told[-1]
    assert found < 14 << 20  # of 16 MiB: the rest is not even unpacked


def test_a_build_from_an_archive_counts_every_line_by_its_member(tmp_path: Path) -> None:
    lines = [record_line("k1", 1e-3), record_line("k2", 2e-3), b"{broken"]
    archive = pack(
        {"m/a.json": b"\n".join(lines), "m/b.json": record_line("k1", 3e-3), "../c.json": lines[0]}
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "all.tar.gz").write_bytes(gzip.compress(archive))
    (tmp_path / "logs" / "plain.json").write_bytes(record_line("k1", 4e-3))
    manifest = build([str(tmp_path / "logs")], tmp_path / "ds", BuildOptions(jobs=1), quiet())
    by_name = {entry["path"].rpartition("/logs/")[2]: entry for entry in manifest["sources"]}
    assert {name: (entry["lines"], entry["records"], entry["bad"]) for name, entry in by_name.items()} == {
        "all.tar.gz": (1, 0, 1), "all.tar.gz!m/a.json": (3, 2, 1), "all.tar.gz!m/b.json": (1, 1, 0),
        "plain.json": (1, 1, 0),
    }  # fmt: skip
    assert list(problems(tmp_path / "ds")) == []
    assert Dataset(tmp_path / "ds").fingerprint()["records"] == 4
    again = scan((str(tmp_path / "logs" / "all.tar.gz"),), tmp_path / "s", on_problem=print)
    assert [entry["sha256"] for entry in again["sources"]] == [
        entry["sha256"] for entry in manifest["sources"] if "all.tar.gz" in entry["path"]
    ]
