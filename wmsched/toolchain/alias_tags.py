"""Whether what a TVM's LLVM back end compiles is right, and mending it where it is not.

The wheel that has AutoScheduler (`wmsched.toolchain.install.WHEEL`) marks a vector access at an index that
is no number with the alias tag of the same vector at index 0. So LLVM takes a store to ``t[32:48]`` and a
load of
``t[i*32 : i*32+32]`` for accesses to different memory, and removes the store: a convolution whose
accumulators are unrolled and are then read by a loop computes the first row of each tile only, in a third of
the time. A search that does not look at results, and none does, takes such programs for the fastest.

Where a buffer is accessed in both ways, the mended build writes the numbers as sums (`worker_site`), which
the code generator does not take for numbers: then all tags of that buffer overlap. All others keep theirs.
Without any, which is right as well, half of the programs that a search finds on x86 are two to five times
slower: a parallel loop's body gets its pointers from a struct, and nothing else tells LLVM that a store to
the output leaves the inputs as they are.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain import python_path

MEND = "WMSCHED_MEND_TVM"  # set for child processes, whose sitecustomize.py reads it
SITE = Path(__file__).resolve().parent / "worker_site"


def ensure_right_code(tvm: ModuleType, target: str) -> bool:
    """See that this process and its children compile right programs.

    Parameters
    ----------
    tvm : ModuleType
        AutoScheduler's TVM, imported.
    target : str
        An LLVM target that this machine can run.

    Returns
    -------
    mended : bool
        Whether this call had to do anything.

    Raises
    ------
    EnvironmentProblem
        If the code is wrong still.
    """
    if not generates_llvm(tvm) or computes_right(tvm, target):
        return False
    # Only now: it imports numpy, and gives it the old name.
    from wmsched.toolchain.worker_site.sitecustomize import mend

    mend(tvm)
    python_path.prepend(SITE)
    os.environ[MEND] = "1"
    if not computes_right(tvm, target):
        raise EnvironmentProblem(
            f"the TVM in {Path(str(tvm.__file__)).parent} compiles wrong programs for {target}: "
            "what unrolled statements write and a loop reads is lost, with mended alias tags too, "
            "and what is measured leaves work out; use another TVM (`wmsched setup-tvm`)"
        )
    return True


def generates_llvm(tvm: ModuleType) -> bool:
    """Whether this TVM has the LLVM back end at all; a build for CUDA or C alone has nothing to be wrong."""
    return tvm.get_global_func("target.build.llvm", allow_missing=True) is not None


def computes_right(tvm: ModuleType, target: str) -> bool:
    """Compile a small matrix product of the kind that goes wrong, run it and compare; some 0.1 s."""
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
