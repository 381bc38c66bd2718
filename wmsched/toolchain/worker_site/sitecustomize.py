"""Runs when a Python process starts with this folder on its path; `wmsched.toolchain.resolve` puts it there
for TVM's builder and runner processes, and `wmsched setup-tvm` puts a copy beside the TVM that it installs.

Three things that TVM 0.16 needs: the name ``float_``, which numpy 2 has no more; where its LLVM code
generator says of memory accesses that overlap that they do not, programs of which it does not say so
(`wmsched.toolchain.alias_tags` has the story); and, where its wheel was made to run parallel loops in one
thread, all threads (`use_threads`). It imports nothing of wmsched: the copy must work alone.
"""

import ctypes
import importlib.abc
import importlib.machinery
import mmap
import os
import re
import struct
import sys

try:
    import numpy
except ImportError:  # a child that has no numpy has no TVM either
    pass
else:
    if not hasattr(numpy, "float_"):
        numpy.float_ = numpy.float64  # type: ignore[attr-defined, misc]


def mend(tvm):
    """Have this process run parallel loops in all threads, and build programs with the right alias tags."""
    use_threads(tvm)
    build = tvm.get_global_func("target.build.llvm", allow_missing=True)
    if build is None:  # a TVM without LLVM
        return

    def build_right(mod, target):
        for name, function in list(mod.functions.items()):
            mistagged = mistagged_buffers(tvm.tir, function.body)
            if mistagged:
                body = _without_fixed_indices(tvm.tir, function.body, mistagged)
                mod.update_func(name, function.with_body(body))
        return build(mod, target)

    tvm.register_func("target.build.llvm", build_right, override=True)


LAUNCH = "TVMBackendParallelLaunch"
ONE_THREAD = re.compile(  # of that function, when there is more than one thread; eax has how many (x86-64)
    rb"\xbf\x01\x00\x00\x00"  # mov edi, 1
    rb"\xe8(....)"  # call omp_set_num_threads
    rb"\x48\x8d\x74\x24\x10"  # lea rsi, [rsp + 16]: what the loop's body is given
    rb"\x31\xc9"  # xor ecx, ecx
    rb"\xba\x01\x00\x00\x00"  # mov edx, 1
    rb"\x48\x8d\x3d(....)"  # lea rdi, [the body]
    rb"\xc7\x44\x24\x20\x01\x00\x00\x00"  # mov dword [rsp + 32], 1: how many parts there are
    rb"\x4c\x89\x64\x24\x18"  # mov [rsp + 24], r12
    rb"\x48\x89\x5c\x24\x10"  # mov [rsp + 16], rbx
    rb"\xe8(....)"  # call GOMP_parallel
    rb"\xeb(.)",  # jmp to the end
    re.DOTALL,
)


def use_threads(tvm):
    """Run parallel loops in as many threads as TVM says it has; whether anything was to be done.

    The wheel was compiled with "1" for the number of threads and of parts that a parallel loop has, so no
    program that AutoScheduler makes uses a second core. The number is put in its place, in this process's
    memory. OpenMP must start as many threads as it is asked for, for there are as many parts: where it is
    told that it need not, everything stays as it is.
    """
    if os.environ.get("OMP_THREAD_LIMIT") or os.environ.get("OMP_DYNAMIC", "").lower() in ("true", "1"):
        return False
    try:
        start = ctypes.cast(getattr(tvm._ffi.base._LIB, LAUNCH), ctypes.c_void_p).value or 0
        found = ONE_THREAD.search(ctypes.string_at(start, 192))
    except (AttributeError, ValueError):  # another TVM
        return False
    return found is not None and _overwrite(start + found.start(), _all_threads(found))


def _all_threads(found):
    """The same instructions with eax in the place of 1; addresses are relative to where these stand."""
    old = found.start()
    code = bytearray(b"\x89\x44\x24\x20\x89\xc7")  # mov [rsp + 32], eax; mov edi, eax

    def at(group, form):
        target = found.end(group) + struct.unpack(form, found[group])[0]
        return struct.pack(form, target - (old + len(code) + struct.calcsize(form)))

    code += b"\xe8"
    code += at(1, "<i")
    code += b"\x8b\x54\x24\x20\x48\x8d\x74\x24\x10\x31\xc9"  # mov edx, [rsp + 32]; as before
    code += b"\x48\x8d\x3d"
    code += at(2, "<i")
    code += b"\x4c\x89\x64\x24\x18\x48\x89\x5c\x24\x10"
    code += b"\xe8"
    code += at(3, "<i")
    code += b"\xeb"
    code += at(4, "<b")
    return bytes(code).ljust(found.end() - old, b"\x90")


def _overwrite(address, code):
    """Put code in the place of what is there; False where the system does not let it."""
    page = mmap.PAGESIZE
    first = address // page * page
    length = -(-(address + len(code) - first) // page) * page
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(first, length, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) != 0:
        return False
    ctypes.memmove(address, code, len(code))
    protect(first, length, mmap.PROT_READ | mmap.PROT_EXEC)
    return True


def mistagged_buffers(tir, body):
    """The buffers (their data variables) whose accesses may get tags that part what overlaps.

    A vector access at an index that is no number is tagged as the one at index 0. So it must meet no access
    at a number beyond that vector, unless both only read.
    """
    moving: dict = {}  # by buffer: width of a vector, whether it stores
    fixed: dict = {}  # by buffer: index, whether it stores

    def visit(node):
        if not isinstance(node, (tir.BufferStore, tir.BufferLoad)):
            return
        index, stores = node.indices[-1], isinstance(node, tir.BufferStore)
        ramp = isinstance(index, tir.Ramp)
        first = index.base if ramp else index
        if isinstance(first, tir.IntImm):
            fixed.setdefault(node.buffer.data, set()).add((int(first), stores))
        elif ramp:
            width = _power_of_two(int(index.lanes) * int(index.stride))
            moving.setdefault(node.buffer.data, set()).add((width, stores))
        elif "x" in index.dtype:  # a vector of some other form: of whose tag nothing is known
            moving.setdefault(node.buffer.data, set()).add((0, stores))

    tir.stmt_functor.post_order_visit(body, visit)

    def apart(vector, other):
        (width, stores), (at, also) = vector, other
        return at >= width and (stores or also)

    return {
        data
        for data, vectors in moving.items()
        if any(apart(vector, other) for vector in vectors for other in fixed.get(data, ()))
    }


def _without_fixed_indices(tir, body, buffers):
    """The same program; an index n of these buffers is n + 0, which LLVM folds once the tags are given."""

    def moved(index):
        if isinstance(index, tir.IntImm):
            return tir.Add(index, tir.IntImm(index.dtype, 0))
        if isinstance(index, tir.Ramp):
            return tir.Ramp(moved(index.base), index.stride, index.lanes)
        return index

    def rewrite(node):
        if node.buffer.data not in buffers:
            return None
        indices = [*node.indices[:-1], moved(node.indices[-1])]
        if isinstance(node, tir.BufferLoad):
            return tir.BufferLoad(node.buffer, indices)
        return tir.BufferStore(node.buffer, node.value, indices)

    return tir.stmt_functor.ir_transform(body, None, rewrite, ["tir.BufferLoad", "tir.BufferStore"])


def _power_of_two(width):
    return 1 << max(0, width - 1).bit_length()


class AfterTvm(importlib.abc.MetaPathFinder):
    """Calls `mend` once ``import tvm`` has run."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "tvm":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None or not os.path.isdir(_auto_scheduler(spec)):
            return spec
        run = spec.loader.exec_module

        def run_and_mend(module):
            run(module)
            mend(module)

        spec.loader.exec_module = run_and_mend  # type: ignore[method-assign]
        return spec


def _auto_scheduler(spec):
    return os.path.join(os.path.dirname(spec.origin or ""), "auto_scheduler")


if os.environ.get("WMSCHED_MEND_TVM") or os.path.isdir(os.path.join(os.path.dirname(__file__), "tvm")):
    sys.meta_path.insert(0, AfterTvm())
