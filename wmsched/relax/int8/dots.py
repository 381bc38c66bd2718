"""Dot products of x86 processors, and which of them a target has.

Data are unsigned and weights signed, as `vpdpbusd` and AMX take them. Where there is neither, `vpmaddwd` of
16-bit numbers sums pairs: `vpmaddubsw` saturates, which no definition of ONNX allows. Those of bfloat16
numbers are in `wmsched.relax.bf16.dots`.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from dataclasses import dataclass
from typing import Any

from wmsched.toolchain.host_cpu import CPUINFO, read_cpuinfo
from wmsched.toolchain.resolve import is_cpu

TILE = 16  # columns of a tile of weights
SUM_BYTES = 4
ROUND, PAIRS = "wmsched_bfloat16_x{}", "wmsched_bfloat16_pairs"
SYS_ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux on x86-64: AMX's registers


@dataclass(frozen=True)
class Dot:
    """Dot product of vectors of small numbers.

    Parameters
    ----------
    name : str
    lanes : int
        Sums of 32 bits in a vector.
    unit : int
        Products in each sum.
    amx : bool
        Whether tiles are multiplied, not vectors.
    code : str
        Of bfloat16 numbers, whose sums are float32: LLVM's functions `ROUND` of 1, 2, 4, 8 and 16 lanes and
        `PAIRS`. Without it the numbers are whole.
    """

    name: str
    lanes: int
    unit: int
    amx: bool = False
    code: str = ""

    @property
    def real(self) -> bool:
        """Whether operands are bfloat16, which is kept as its bits, and sums are float32."""
        return bool(self.code)

    @property
    def widened(self) -> bool:
        """Whether operands are eight-bit numbers in 16 bits."""
        return self.unit == 2 and not self.real

    @property
    def given(self) -> str:
        """Type of the data that are multiplied, as they come."""
        return "float32" if self.real else "uint8"

    @property
    def element(self) -> str:
        """Type of the data as the instructions take them."""
        return "uint16" if self.real else "int16" if self.widened else "uint8"

    @property
    def weight(self) -> str:
        """Type of the weights."""
        return "uint16" if self.real else "int16" if self.widened else "int8"

    @property
    def total(self) -> str:
        """Type of the sums."""
        return "float32" if self.real else "int32"

    @property
    def size(self) -> int:
        """Bytes of an operand."""
        return SUM_BYTES // self.unit


#: Best first, with LLVM's features that each needs, and the names of those in /proc/cpuinfo.
DOTS: tuple[tuple[Dot, dict[str, str]], ...] = (
    (
        Dot("amx", 16, 4, amx=True),
        {"amx-tile": "amx_tile", "amx-int8": "amx_int8", "avx512f": "avx512f", "avx512vnni": "avx512_vnni"},
    ),
    (Dot("avx512-vnni", 16, 4), {"avx512vnni": "avx512_vnni", "avx512bw": "avx512bw"}),
    (Dot("avx-vnni", 8, 4), {"avxvnni": "avx_vnni", "avx2": "avx2"}),
    (Dot("avx512-madd", 16, 2), {"avx512bw": "avx512bw"}),
    (Dot("avx2-madd", 8, 2), {"avx2": "avx2", "fma": "fma"}),
)

PERMUTES = ((Dot("avx512-vbmi", 16, 4), {"avx512vbmi": "avx512vbmi", "avx512bw": "avx512bw"}),)


def dot_of(target: Any, kinds: tuple[tuple[Dot, dict[str, str]], ...] = DOTS) -> Dot | None:
    """Return the best dot product of a target, of some kinds; None for another kind of processor.

    A processor that has this machine's name is this machine: what a virtual machine hides is left out.
    """
    from tvm.target import codegen

    if not is_cpu(target):
        return None
    try:
        features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    except Exception:  # no LLVM target; TVM's errors have no common base
        return None
    system = getattr(codegen, "llvm_get_system_cpu", None)
    here = system is not None and str(target.attrs.get("mcpu", "")) == str(system())
    _, flags = read_cpuinfo(CPUINFO)
    for dot, needs in kinds:
        if not features.issuperset(needs):
            continue
        if here and flags and not flags.issuperset(needs.values()):
            continue
        if dot.amx and not (platform.system() == "Linux" and (not here or _may_use_tiles())):
            continue
        return dot
    return None


def permutes_bytes(target: Any) -> bool:
    """Whether a target permutes the bytes of two registers (AVX512-VBMI), which look 64 up in a table."""
    return dot_of(target, PERMUTES) is not None


@functools.cache
def _may_use_tiles() -> bool:
    """Whether Linux lets this process use AMX's registers."""
    try:
        return ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0
    except (OSError, AttributeError):
        return False


def accumulated(dot: Dot, sums: Any, data: Any, weights: Any) -> Any:
    """Return TIR of sums plus the dot products of two vectors; each int32 of `data` has one sum's operands.

    Works around apache-tvm 0.27: its tensor intrinsic of `vpdpbusd` has the operand types of LLVM before 22.
    """
    from tvm.script.ir_builder import tirx as T

    if dot.real:
        pairs = f"int32x{dot.lanes}"
        data, weights = (T.reinterpret(pairs, each) for each in (data, weights))
        return T.call_extern(f"float32x{dot.lanes}", PAIRS, sums, data, weights)
    kind, bits = f"int32x{dot.lanes}", 32 * dot.lanes
    operand = f"int16x{2 * dot.lanes}" if dot.widened else f"int8x{4 * dot.lanes}"
    data = T.reinterpret(operand, data)
    if not dot.widened:
        return T.call_llvm_pure_intrin(kind, f"llvm.x86.avx512.vpdpbusd.{bits}", sums, data, weights)
    name = "llvm.x86.avx512.pmaddw.d.512" if bits == 512 else "llvm.x86.avx2.pmadd.wd"
    return sums + T.call_llvm_pure_intrin(kind, name, data, weights)
