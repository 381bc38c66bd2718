"""NVRTC without a GPU: a kernel's machine code for an architecture, and what registers and stack it takes.

NVRTC and CUDA's headers are pip's packages (`pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime
nvidia-cuda-crt`), and the process needs no driver.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from dataclasses import dataclass
from typing import Any

from wmsched.base.errors import EnvironmentProblem
from wmsched.codegen.cuda_headers import short_headers
from wmsched.toolchain.cuda import COMPILER, LIBRARIES, MAJOR, pip_folder

_REGISTERS, _STACK = 0x2F, 0x11  # attributes of NVIDIA's section .nv.info: of a kernel, for each symbol
_SHARED = ".nv.shared."  # the name of a section, with the kernel's after it
_VALUE_FORMAT = 4  # of an attribute with a size and a value


@dataclass(frozen=True)
class Resources:
    """What a kernel takes: registers of a thread, bytes of stack (spilled registers too), shared memory.

    Of the last the bytes that its source declares; what is asked for at a launch is not in it.
    """

    registers: int
    stack: int
    shared: int = 0


@functools.cache
def supported() -> tuple[str, ...]:
    """Return the architectures that this NVRTC knows, as "sm_90".

    Raises
    ------
    EnvironmentProblem
        There is no NVRTC.
    """
    folder = pip_folder()
    if folder is None:
        raise EnvironmentProblem(
            f"no NVRTC of CUDA {MAJOR}: pip install 'cuda-bindings>={MAJOR}' 'nvidia-cuda-nvrtc>={MAJOR}' "
            f"'nvidia-cuda-runtime>={MAJOR}' 'nvidia-cuda-crt>={MAJOR}'"
        )
    for pattern in LIBRARIES[COMPILER]:
        for path in sorted((folder / "lib").glob(pattern)):
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    os.environ.setdefault("CUDA_PATH", str(folder))
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise EnvironmentProblem(
            f"no cuda-bindings ({error}): pip install 'cuda-bindings>={MAJOR}'"
        ) from error
    _, archs = nvrtc.nvrtcGetSupportedArchs()
    return tuple(f"sm_{number}" for number in archs)


def cubin(source: str, arch: str) -> bytes:
    """Return the machine code of CUDA source; RuntimeError with NVRTC's log if it does not compile."""
    supported()
    from tvm.support import nvcc

    with short_headers():
        return bytes(nvcc.compile_cuda(source, target_format="cubin", arch=arch))


def resources(code: bytes) -> dict[str, Resources]:
    """Return what each kernel in machine code takes, as the compiler wrote it down."""
    sections = _sections(code)
    names = _symbols(code, sections)
    found: dict[int, dict[int, int]] = {_REGISTERS: {}, _STACK: {}}
    _, start, size, _ = next(one for one in sections if one[0] == ".nv.info")
    place = start
    while place < start + size:
        kind, attribute, length = struct.unpack_from("<BBH", code, place)
        place += 4
        if kind != _VALUE_FORMAT:
            continue
        if attribute in found:
            symbol, value = struct.unpack_from("<II", code, place)
            found[attribute][symbol] = value
        place += length
    shared = {name.removeprefix(_SHARED): size for name, _, size, _ in sections if name.startswith(_SHARED)}
    return {
        names[symbol]: Resources(registers, found[_STACK].get(symbol, 0), shared.get(names[symbol], 0))
        for symbol, registers in found[_REGISTERS].items()
    }


def _sections(code: bytes) -> list[tuple[str, int, int, int]]:
    """Return name, offset, size and link of an ELF file's sections."""
    if code[:4] != b"\x7fELF":
        raise ValueError("no machine code: it does not start as an ELF file")
    (table,) = struct.unpack_from("<Q", code, 0x28)
    entry, count, named = struct.unpack_from("<HHH", code, 0x3A)
    raw: list[Any] = [struct.unpack_from("<IIQQQQIIQQ", code, table + k * entry) for k in range(count)]
    texts = raw[named][4]
    return [(_text(code, texts + one[0]), one[4], one[5], one[6]) for one in raw]


def _symbols(code: bytes, sections: list[tuple[str, int, int, int]]) -> list[str]:
    _, start, size, link = next(one for one in sections if one[0] == ".symtab")
    texts = sections[link][1]
    return [_text(code, texts + struct.unpack_from("<I", code, start + at)[0]) for at in range(0, size, 24)]


def _text(code: bytes, place: int) -> str:
    return code[place : code.index(b"\0", place)].decode()
