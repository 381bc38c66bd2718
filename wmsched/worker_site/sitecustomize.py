"""Runs when a Python process starts with this folder on its path; `wmsched.resolve` puts it there for TVM's
builder and runner processes, and `wmsched setup-tvm` puts a copy beside the TVM that it installs.

Two things that TVM 0.16 needs: the name ``float_``, which numpy 2 has no more, and, where its LLVM code
generator says of memory accesses that overlap that they do not, builds that do not listen to that
(`wmsched.codegen` has the story). It imports nothing of wmsched: the copy must work alone.
"""

import importlib.abc
import importlib.machinery
import os
import sys

NO_TBAA = "-enable-tbaa:bool=false"  # TVM's way to write an option of LLVM's in a target's cl-opt

try:
    import numpy
except ImportError:  # a child that has no numpy has no TVM either
    pass
else:
    if not hasattr(numpy, "float_"):
        numpy.float_ = numpy.float64  # type: ignore[attr-defined, misc]


def mend(tvm):
    """Build every LLVM module without type-based alias analysis from now on, in this process."""
    build = tvm.get_global_func("target.build.llvm", allow_missing=True)
    if build is None:  # a TVM without LLVM
        return

    def build_without_tbaa(mod, target):
        told = dict(target.export())
        options = [str(option) for option in told.get("cl-opt", [])]
        if not any("-enable-tbaa" in option for option in options):
            told["cl-opt"] = [*options, NO_TBAA]
            target = tvm.target.Target(told)
        return build(mod, target)

    tvm.register_func("target.build.llvm", build_without_tbaa, override=True)


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
