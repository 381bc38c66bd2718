"""The processor's name for LLVM: its own, or that of the nearest older one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from wmsched.toolchain.host_cpu import NEAREST, host_cpu, lacking, nearest, read_cpuinfo

AVX2 = "avx avx2 fma bmi1 bmi2 f16c movbe sse4a clzero"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
ICELAKE = f"{AVX512} avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq gfni vaes"
ZEN5 = f"{ICELAKE} avx512_bf16 avx_vnni avx512_vp2intersect"
ALL = {name for name, _, _ in NEAREST}
TRIPLE = "x86_64-linux-gnu"


def llvm(cpu, *, known=ALL, uses=""):
    """TVM's codegen, to which this processor is `cpu`; a TVM before 0.16 does not say what programs use."""
    asked = []

    def archlist(target):
        asked.append(target)
        return sorted(known)

    def features(target):
        assert target == {"kind": "llvm", "mtriple": TRIPLE, "mcpu": cpu}
        return uses.split()

    tells = {"llvm_get_cpu_features": features} if uses else {}
    return SimpleNamespace(
        llvm_get_system_cpu=lambda: cpu, llvm_get_cpu_archlist=archlist, asked=asked, **tells
    )


@pytest.mark.parametrize(
    "vendor, flags, known, name",
    [
        ("AuthenticAMD", ZEN5, ALL, "znver4"),
        ("AuthenticAMD", ZEN5, ALL - {"znver4"}, "znver3"),
        ("AuthenticAMD", ICELAKE, ALL, "znver3"),
        ("AuthenticAMD", AVX2, ALL, "znver2"),
        ("GenuineIntel", ZEN5, ALL, "icelake-server"),
        ("GenuineIntel", f"{ZEN5} avx512_fp16 amx_tile amx_int8", ALL, "sapphirerapids"),
        ("GenuineIntel", f"{AVX512} avx512_vnni", ALL, "cascadelake"),
        ("GenuineIntel", AVX512, ALL, "skylake-avx512"),
        ("HygonGenuine", AVX2, ALL, "haswell"),
        ("GenuineIntel", AVX2.replace(" fma", ""), ALL, ""),
        ("", "", ALL, ""),
        ("AuthenticAMD", ZEN5, None, "skylake-avx512"),  # an old TVM, which does not tell what it knows
        ("AuthenticAMD", AVX2, None, "haswell"),
    ],
)
def test_the_nearest(vendor, flags, known, name) -> None:
    assert nearest(vendor, flags.split(), known) == name


def cpuinfo(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    return path


def test_cpuinfo(tmp_path) -> None:
    text = f"processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: {AVX2}\n\nprocessor\t: 1\nflags\t: none\n"
    assert read_cpuinfo(cpuinfo(tmp_path, text)) == ("AuthenticAMD", frozenset(AVX2.split()))
    assert read_cpuinfo(tmp_path / "no such file") == ("", frozenset())
    assert read_cpuinfo(cpuinfo(tmp_path, "\x00 nothing like it\n")) == ("", frozenset())


def test_what_llvm_knows_is_left_alone(tmp_path) -> None:
    zen5 = cpuinfo(tmp_path, f"vendor_id\t: AuthenticAMD\nflags\t\t: {ZEN5}\n")
    assert host_cpu(llvm("znver4"), dict, TRIPLE, zen5) == "znver4"
    assert host_cpu(llvm("znver5", uses=f"{ZEN5} fast-gather"), dict, TRIPLE, zen5) == "znver5"
    generic = llvm("generic")
    assert host_cpu(generic, dict, TRIPLE, zen5) == "znver4"
    assert generic.asked == [{"kind": "llvm", "mtriple": TRIPLE}]
    assert host_cpu(llvm("generic", known={"x86-64"}), dict, TRIPLE, zen5) == ""
    assert host_cpu(llvm("generic"), dict, "aarch64-linux-gnu", zen5) == ""
    assert host_cpu(SimpleNamespace(), dict, TRIPLE, zen5) == "skylake-avx512"  # TVM before 0.12


@pytest.mark.parametrize(
    "flags, cpu, uses, known, name",
    [
        (AVX2, "skylake-avx512", AVX512, ALL, "haswell"),  # a virtual machine that hides AVX-512
        (ICELAKE, "sapphirerapids", ZEN5, ALL, "sapphirerapids"),  # programs use nothing of what it hides
        ("sse4_1 sse4_2", "skylake", AVX2, ALL, ""),  # a Pentium
        (AVX2, "skylake-avx512", AVX512, {"skylake-avx512"}, ""),
        (AVX2, "skylake-avx512", "", ALL, "skylake-avx512"),  # a TVM that does not tell
        ("", "skylake", AVX2, ALL, "skylake"),  # nor does the system
        (AVX512, "nocona", "sse3", ALL, "skylake-avx512"),  # a virtual machine that calls itself an old one
        (AVX2, "nocona", "sse3", ALL, "haswell"),
        (AVX2, "nocona", "sse3", {"nocona"}, "nocona"),  # of which LLVM knows no better
    ],
)
def test_a_processor_that_has_less_or_more_than_its_name_says(
    tmp_path, flags, cpu, uses, known, name
) -> None:
    here = cpuinfo(tmp_path, f"vendor_id\t: GenuineIntel\nflags\t\t: {flags}\n")
    assert host_cpu(llvm(cpu, known=known, uses=uses), dict, TRIPLE, here) == name


def test_what_a_targets_programs_use_and_this_processor_lacks(tmp_path) -> None:
    zen3 = cpuinfo(tmp_path, f"flags\t\t: {AVX2} vaes sse4a\n")
    uses = SimpleNamespace(
        llvm_get_cpu_features=lambda target: {*target.split(), "fast-gather", "avx512fp16"}
    )
    assert lacking(uses, f"{AVX512} sse4.1", zen3) == ("avx512f", "avx512bw", "avx512dq", "avx512vl")
    assert lacking(uses, AVX2, zen3) == ()
    assert lacking(SimpleNamespace(), AVX512, zen3) == ()  # a TVM that does not tell
    assert lacking(uses, AVX512, tmp_path / "no such file") == ()
