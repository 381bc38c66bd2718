"""Name this machine's CPU for TVM's LLVM, and check whether it can run a target's programs.

LLVM calls a CPU newer than itself "generic" and compiles programs without AVX and fused multiply-add, several
times slower. A newer x86 CPU therefore gets the name of the closest older CPU whose vector instructions it
has.

LLVM goes by family and model, so it also names CPUs that lack some instructions of that name. Examples are a
Pentium without AVX and a virtual machine that hides AVX-512. Programs would die of an illegal instruction, so
such CPUs get an older name too.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
NAME_FIELDS = ("vendor_id", "model name", "cpu family", "model", "CPU implementer", "CPU part")
UNKNOWN_CPUS = ("", "native", "generic")

_AVX2 = ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VBMI = (*_AVX512, "avx512_vbmi2", "avx512_vnni", "avx512_bitalg", "avx512_vpopcntdq", "gfni", "vaes")

#: (LLVM's name, vendor or "" for any, required flags of /proc/cpuinfo), best first.
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

#: LLVM features that float32 programs use; /proc/cpuinfo has the same names.
VECTORS = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl")


def host_cpu(codegen: Any, target: Callable[[dict[str, str]], Any], triple: str, path: Path = CPUINFO) -> str:
    """Return LLVM's name of this CPU or of the closest one that LLVM knows; "" if there is none.

    Parameters
    ----------
    codegen : module
        TVM's ``tvm.target.codegen``.
    target : callable
        TVM's ``tvm.target.Target``.
    triple : str
        LLVM triple of this machine, such as ``x86_64-linux-gnu``.
    """
    system_cpu = getattr(codegen, "llvm_get_system_cpu", None)
    cpu = str(system_cpu()) if system_cpu is not None else ""
    llvm = {"kind": "llvm", "mtriple": triple}
    own = ""  # LLVM's name, if this CPU runs programs for it
    if cpu not in UNKNOWN_CPUS:
        used, has = _vector_features(codegen, target({**llvm, "mcpu": cpu}), path)
        if used == has:
            return cpu
        # A virtual machine may report an old CPU and have newer instructions: LLVM takes Proxmox's x86-64-v3
        # for a K8.
        own = cpu if used < has else ""
    if not triple.startswith(("x86_64", "i686")):
        return own
    archlist = getattr(codegen, "llvm_get_cpu_archlist", None)
    known: set[str] | None = None
    if archlist is not None:
        known = {str(name) for name in archlist(target(llvm))}
    return nearest(*read_cpuinfo(path), known) or own


def nearest(vendor: str, flags: Iterable[str], known: set[str] | None) -> str:
    """Return the first CPU of `NEAREST` that needs no more than these flags; "" for none.

    Parameters
    ----------
    known : set of str or None
        CPU names that LLVM knows. None if this TVM cannot list them; then only names that every
        TVM's LLVM has are considered.
    """
    has = set(flags)
    for name, wanted, needs in NEAREST:
        there = name in known if known is not None else name in ("skylake-avx512", "haswell")
        if there and wanted in ("", vendor) and has.issuperset(needs):
            return name
    return ""


def lacking(codegen: Any, target: Any, path: Path = CPUINFO) -> tuple[str, ...]:
    """Return the features of `VECTORS` that a target's programs use and this CPU lacks; they would crash.

    Empty where the system or this TVM cannot tell, or the target is of another architecture.

    Parameters
    ----------
    codegen : module
        TVM's ``tvm.target.codegen``.
    target : tvm.target.Target
    """
    used, has = _vector_features(codegen, target, path)
    return tuple(name for name in VECTORS if name in used - has)


def absent(names: Iterable[str], path: Path = CPUINFO) -> list[str]:
    """Return those of some names of instructions that /proc/cpuinfo does not list; [] without such a file."""
    _, flags = read_cpuinfo(path)
    return [name for name in names if flags and name not in flags]


def _vector_features(codegen: Any, target: Any, path: Path) -> tuple[set[str], set[str]]:
    """Return the features of `VECTORS` that an LLVM target uses, and those this CPU has.

    Both are empty where the system or this TVM cannot tell, or the target is of another architecture.
    """
    _, flags = read_cpuinfo(path)
    try:
        used = {str(name) for name in codegen.llvm_get_cpu_features(target)} if flags else set()
    except Exception:  # TVM before 0.16 has no such function; an unknown target fails at its build
        return set(), set()
    return set(VECTORS) & used, set(VECTORS) & flags


def read_cpuinfo(path: Path = CPUINFO) -> tuple[str, frozenset[str]]:
    """Return vendor and flags of the first processor; "" and an empty set without such a file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return "", frozenset()
    pairs = (line.partition(":") for line in lines)
    rows = {key.strip(): value.strip() for key, _, value in pairs}
    return rows.get("vendor_id", ""), frozenset(rows.get("flags", "").split())


def cpu_name(path: Path = CPUINFO) -> str:
    """Return maker, name, family and model of the first processor; the machine's type without such a file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    rows = {key.strip(): value.strip() for key, _, value in pairs}
    return " ".join(rows[name] for name in NAME_FIELDS if rows.get(name)) or platform.machine()
