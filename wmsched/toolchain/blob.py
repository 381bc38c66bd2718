"""What a library carries beside its code (constants, kernels of a device), as a file for the linker."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

__all__ = ["linking"]

#: Where the linker may put gigabytes: behind what code refers to by 32 bits.
LARGE = '.lrodata,"al"' if platform.machine() == "x86_64" else '.rodata,"a"'
SOURCE = """\
    .section {section},@progbits
    .globl {name}
    .type {name},@object
    .balign 64
{name}:
    .incbin "{file}"
    .size {name}, .-{name}
    .section .note.GNU-stack,"",@progbits
"""


#: An identifier is a hash of the whole library, of which all but a little are the model's weights.
NO_BUILD_ID = "-Wl,--build-id=none"


def linking() -> dict[str, Any]:
    """Return the arguments of TVM's `export_library` with which a library of many constants is soon linked.

    TVM's own way takes the constants through LLVM and copies them several times, which takes seconds of a
    large model's compilation.

    >>> executable.export_library("model.so", **linking())
    """
    if not sys.platform.startswith("linux"):
        return {}
    return {"options": [NO_BUILD_ID], "fpack_imports": _packed}


def _packed(module: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
    """Write what a module imports, and return the path of the assembler's source that takes it in."""
    import numpy as np
    import tvm_ffi

    file, source = Path(folder) / "imports.bin", Path(folder) / "imports.s"
    np.from_dlpack(tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module)).tofile(file)
    name = prefix + str(tvm_ffi.get_global_func("runtime.ModuleImportsBlobName")())
    source.write_text(SOURCE.format(section=LARGE, name=name, file=file), encoding="utf-8")
    return str(source)
