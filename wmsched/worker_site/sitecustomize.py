"""Runs when a Python process starts with this folder on its path; `wmsched.resolve` puts it there for TVM's
builder and runner processes, and `wmsched setup-tvm` puts a copy beside the TVM that it installs.

Two things that TVM 0.16 needs: the name ``float_``, which numpy 2 has no more, and, where its LLVM code
generator says of memory accesses that overlap that they do not, programs of which it does not say so
(`wmsched.codegen` has the story). It imports nothing of wmsched: the copy must work alone.
"""

import importlib.abc
import importlib.machinery
import os
import sys

try:
    import numpy
except ImportError:  # a child that has no numpy has no TVM either
    pass
else:
    if not hasattr(numpy, "float_"):
        numpy.float_ = numpy.float64  # type: ignore[attr-defined, misc]


def mend(tvm):
    """See to it that this process's LLVM builds get programs whose alias tags come out right."""
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
