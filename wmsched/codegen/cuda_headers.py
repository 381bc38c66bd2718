"""Compile CUDA kernels with short replacements of libcu++'s headers, whose parsing dominates.

TVM starts each kernel with three libcu++ headers, for integer names and a few type traits. NVRTC parses them
each time: 0.6 s of the 0.7 to 1.5 s that a float32 kernel takes, and 50 kB of unused machine code. Kernels
that include no other header get short ones of the same names.

Works around TVM 0.27's CUDA code generator; remove when it no longer includes ``cuda/std``.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

_INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", re.MULTILINE)

#: Replacement of each header: the part that TVM's generated code and its NVRTC preamble use.
HEADERS = {
    "cuda/std/cstdint": """#pragma once
namespace cuda { namespace std {
using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long long;
using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned int;
using uint64_t = unsigned long long;
} }
""",
    "cuda/std/limits": """#pragma once
namespace cuda { namespace std {
template <class T> struct numeric_limits;
template <> struct numeric_limits<float> {
  static __device__ float infinity() { return __int_as_float(0x7f800000); }
};
} }
""",
    "cuda/std/type_traits": """#pragma once
namespace cuda { namespace std {
template <class T, T v> struct integral_constant { static constexpr T value = v; };
using true_type = integral_constant<bool, true>; using false_type = integral_constant<bool, false>;
template <class T, class U> struct is_same : false_type {};
template <class T> struct is_same<T, T> : true_type {};
template <class T, class U> inline constexpr bool is_same_v = is_same<T, U>::value;
template <class T> struct is_integral : false_type {};
template <> struct is_integral<bool> : true_type {}; template <> struct is_integral<char> : true_type {};
template <> struct is_integral<signed char> : true_type {};
template <> struct is_integral<unsigned char> : true_type {};
template <> struct is_integral<short> : true_type {};
template <> struct is_integral<unsigned short> : true_type {};
template <> struct is_integral<int> : true_type {}; template <> struct is_integral<unsigned> : true_type {};
template <> struct is_integral<long> : true_type {};
template <> struct is_integral<unsigned long> : true_type {};
template <> struct is_integral<long long> : true_type {};
template <> struct is_integral<unsigned long long> : true_type {};
template <class T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<double> : true_type {};
template <class T> struct is_signed : integral_constant<bool, T(-1) < T(0)> {};
template <class T> struct is_unsigned : integral_constant<bool, T(0) < T(-1)> {};
template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool b, class T, class U> struct conditional { using type = T; };
template <class T, class U> struct conditional<false, T, U> { using type = U; };
} }
""",
}
#: Headers that a kernel may include; NVRTC skips the lines for the host. Those of half floats and matrix
#: units need nothing else of libcu++.
_KNOWN = HEADERS.keys() | {"cstdint", "type_traits", "cuda.h", "cuda_fp16.h", "cuda_bf16.h", "mma.h"}

logger = logging.getLogger("wmsched")
_lock = threading.Lock()


def install() -> None:
    """Make TVM compile CUDA with the short headers in this process; without `cuda-bindings` do nothing."""
    import tvm_ffi
    from tvm.support import nvcc

    if getattr(nvcc.tvm_callback_cuda_compile, "short_headers", False):
        return
    compile_cuda = nvcc.tvm_callback_cuda_compile

    def shorter(code: str) -> Any:
        return compiled(code, compile_cuda)

    shorter.short_headers = True  # type: ignore[attr-defined]
    nvcc.tvm_callback_cuda_compile = shorter
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", shorter, override=True)


def compiled(code: str, compile_cuda: Callable[[str], Any]) -> Any:
    """Return `compile_cuda` of a kernel, with short headers where possible."""
    if suits(code):
        try:
            with short_headers():
                return compile_cuda(code)
        except Exception as error:  # whatever failed, the full headers decide
            logger.debug("wmsched: compiled once more, with the whole headers: %s", error)
    return compile_cuda(code)


def suits(code: str) -> bool:
    """Return whether a kernel needs only what `HEADERS` replaces."""
    if not set(_INCLUDE.findall(code)) <= _KNOWN:
        return False  # barriers and the like: their headers need the whole library
    return "CUtensorMap" not in code


@contextlib.contextmanager
def short_headers() -> Iterator[None]:
    """Make NVRTC use `HEADERS` instead of its own files during the block."""
    try:
        from cuda.bindings import nvrtc
    except ImportError:  # TVM reports what is missing, or uses nvcc
        yield
        return
    texts = [text.encode() for text in HEADERS.values()]
    names = [name.encode() for name in HEADERS]
    with _lock:
        create = nvrtc.nvrtcCreateProgram
        nvrtc.nvrtcCreateProgram = lambda code, name, *_: create(code, name, len(names), texts, names)
        try:
            yield
        finally:
            nvrtc.nvrtcCreateProgram = create
