"""This machine's processor by a name that a TVM's LLVM knows, and whether it runs a target's programs.

LLVM names the processors of its time. One that came later is "generic" to it, and programs for that have
neither AVX nor fused multiply-adds: several times slower than need be. So a newer x86 processor gets the name
of the nearest older one whose vector instructions it has. And so does one that has fewer than its name says:
LLVM goes by family and model, and a Pentium without AVX, or a virtual machine that hides AVX-512, is to it
what its relatives are. Their programs end in an illegal instruction there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
UNKNOWN = ("", "native", "generic")

_AVX2 = ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VBMI = (*_AVX512, "avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq", "gfni", "vaes")

#: (LLVM's name, vendor or "" for any, flags of /proc/cpuinfo that it takes), the best first.
NEAREST: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("znver4", "AuthenticAMD", (*_VBMI, "avx512_bf16", "sse4a", "clzero")),
    ("znver3", "AuthenticAMD", (*_AVX2, "vaes", "sse4a", "clzero")),
    ("znver2", "AuthenticAMD", (*_AVX2, "sse4a", "clzero")),
    ("sapphirerapids", "GenuineIntel", (*_VBMI, "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8")),
    ("icelake-server", "", _VBMI),
    ("cascadelake", "", (*_AVX512, "avx512_vnni")),
    ("skylake-avx512", "", _AVX512),
    ("haswell", "", _AVX2),
)

#: Of LLVM's features those that programs of float32 make use of; /proc/cpuinfo calls them the same.
VECTORS = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl")


def host_cpu(codegen: Any, target: Callable[[dict[str, str]], Any], triple: str, path: Path = CPUINFO) -> str:
    """LLVM's name for this processor or the nearest that it knows; "" where nothing better is known.

    Parameters
    ----------
    codegen : module
        TVM's ``tvm.target.codegen``.
    target : callable
        TVM's ``tvm.target.Target``.
    triple : str
        This machine's, such as ``x86_64-linux-gnu``.
    """
    system_cpu = getattr(codegen, "llvm_get_system_cpu", None)
    cpu = str(system_cpu()) if system_cpu is not None else ""
    llvm = {"kind": "llvm", "mtriple": triple}
    own = ""  # what LLVM says, where programs for it run here
    if cpu not in UNKNOWN:
        used, has = _vectors(codegen, target({**llvm, "mcpu": cpu}), path)
        if used == has:
            return cpu
        # A virtual machine may call itself an old processor and have a new one's instructions: Proxmox's
        # x86-64-v3 is a K8 to LLVM.
        own = cpu if used < has else ""
    if not triple.startswith(("x86_64", "i686")):
        return own
    archlist = getattr(codegen, "llvm_get_cpu_archlist", None)
    known: set[str] | None = None
    if archlist is not None:
        known = {str(name) for name in archlist(target(llvm))}
    return nearest(*read_cpuinfo(path), known) or own


def nearest(vendor: str, flags: Iterable[str], known: set[str] | None) -> str:
    """The best of `NEAREST` that has no more instructions than the flags say; "" for none.

    Parameters
    ----------
    known : set of str or None
        What LLVM has names for; None: not told, and only names that every TVM's LLVM has are taken.
    """
    has = set(flags)
    for name, wanted, needs in NEAREST:
        there = name in known if known is not None else name in ("skylake-avx512", "haswell")
        if there and wanted in ("", vendor) and has.issuperset(needs):
            return name
    return ""


def lacking(codegen: Any, target: Any, path: Path = CPUINFO) -> tuple[str, ...]:
    """Of `VECTORS` what programs for an LLVM target use and this processor has not: they would crash here.

    None where the system or this TVM does not tell, or the target is another architecture's.

    Parameters
    ----------
    codegen : module
        TVM's ``tvm.target.codegen``.
    target : tvm.target.Target
    """
    used, has = _vectors(codegen, target, path)
    return tuple(name for name in VECTORS if name in used - has)


def _vectors(codegen: Any, target: Any, path: Path) -> tuple[set[str], set[str]]:
    """Of `VECTORS` what programs for an LLVM target use, and what this processor has; nothing of either where
    the system or this TVM does not tell, or the target is another architecture's.
    """
    _, flags = read_cpuinfo(path)
    try:
        used = {str(name) for name in codegen.llvm_get_cpu_features(target)} if flags else set()
    except Exception:  # a TVM before 0.16 has no such function; what it does not know it says when it builds
        return set(), set()
    return set(VECTORS) & used, set(VECTORS) & flags


def read_cpuinfo(path: Path = CPUINFO) -> tuple[str, frozenset[str]]:
    """Vendor and flags of the first processor; "" and none where the system does not tell."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return "", frozenset()
    pairs = (line.partition(":") for line in lines)
    rows = {key.strip(): value.strip() for key, _, value in pairs}
    return rows.get("vendor_id", ""), frozenset(rows.get("flags", "").split())
