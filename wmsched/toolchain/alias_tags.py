"""Detect and work around wrong alias tags (TBAA) in the LLVM back end of an AutoScheduler TVM.

Works around the wheel `wmsched.toolchain.install.WHEEL` (hhb-tvm 3.2.3); remove when AutoScheduler needs no
such wheel. Its code generator gives a vector access at a variable index the alias tag of the vector at index
0. LLVM then assumes that a store to ``t[32:48]`` and a load of ``t[i*32 : i*32+32]`` never overlap, and
removes the store. A convolution with unrolled accumulators that a loop reads computes only the first row of
each tile, in a third of the time. No search checks results, so it takes such programs for the fastest.

The patched build (`worker_site`) changes only buffers that are accessed in both ways. It writes their
constant indices as sums, which the code generator does not recognise as constants, so that all tags of the
buffer overlap. Dropping all tags would be correct too, but half of the programs that a search finds on x86
become two to five times slower. A parallel loop's body loads its pointers from a struct, and only the tags
tell LLVM that a store to the output leaves the inputs unchanged.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain import python_path

PATCH_VARIABLE = "WMSCHED_MEND_TVM"  # environment variable that child processes' sitecustomize.py reads
SITE = Path(__file__).resolve().parent / "worker_site"


def ensure_right_code(tvm: ModuleType, target: str) -> bool:
    """Make this process and its children compile correct programs; patch TVM's build if it does not.

    Parameters
    ----------
    tvm : ModuleType
        AutoScheduler's TVM, imported.
    target : str
        An LLVM target that this machine can run.

    Returns
    -------
    bool
        Whether this call patched the build.

    Raises
    ------
    EnvironmentProblem
        The patched build is still wrong.
    """
    if not generates_llvm(tvm) or computes_right(tvm, target):
        return False
    # Imported late: it imports numpy and restores an old name in it.
    from wmsched.toolchain.worker_site.sitecustomize import mend

    mend(tvm)
    python_path.prepend(SITE)
    os.environ[PATCH_VARIABLE] = "1"
    if not computes_right(tvm, target):
        raise EnvironmentProblem(
            f"the TVM in {Path(str(tvm.__file__)).parent} compiles wrong programs for {target}: "
            "what unrolled statements write and a loop reads is lost, with mended alias tags too, "
            "and what is measured leaves work out; use another TVM (`wmsched setup-tvm`)"
        )
    return True


def generates_llvm(tvm: ModuleType) -> bool:
    """Return whether this TVM has the LLVM back end; a build for only CUDA or C has none."""
    return tvm.get_global_func("target.build.llvm", allow_missing=True) is not None


def computes_right(tvm: ModuleType, target: str) -> bool:
    """Compile and run a small matrix product that shows the bug; return whether its result is right.

    Takes about 0.1 s.
    """
    import numpy as np

    te = importlib.import_module("tvm.te")
    rows, tile, columns, depth, lanes = 16, 4, 32, 256, 16
    a = te.placeholder((rows, depth), name="a")
    b = te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    result = te.compute((rows, columns), lambda i, j: product[i, j] + 1.0, name="result")
    schedule = te.create_schedule(result.op)
    block, _ = schedule[result].split(result.op.axis[0], tile)
    schedule[result].vectorize(result.op.axis[1])
    schedule[product].compute_at(schedule[result], block)
    i, j = product.op.axis
    outer, inner = schedule[product].split(j, lanes)
    schedule[product].reorder(product.op.reduce_axis[0], i, outer, inner)
    schedule[product].unroll(i)
    schedule[product].unroll(outer)
    schedule[product].vectorize(inner)
    function = tvm.build(schedule, [a, b, result], tvm.target.Target(target))
    rng = np.random.default_rng(0)
    values = [rng.random(shape, dtype=np.float32) for shape in ((rows, depth), (depth, columns))]
    arrays: list[Any] = [tvm.nd.array(v) for v in (*values, np.zeros((rows, columns), np.float32))]
    function(*arrays)
    return bool(np.allclose(arrays[-1].numpy(), values[0] @ values[1] + 1.0, rtol=1e-3))
