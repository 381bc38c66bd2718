"""Whether what a TVM's LLVM back end compiles is right, and mending it where it is not.

The wheel that has AutoScheduler (`wmsched.resolve.WHEEL`) marks a vector access at an index that is no number
with the alias tag of the same vector at index 0. So LLVM takes a store to ``t[32:48]`` and a load of
``t[i*32 : i*32+32]`` for accesses to different memory, and removes the store: a convolution whose
accumulators are unrolled and are then read by a loop computes the first row of each tile only, in a third of
the time. A search that does not look at results, and none does, takes such programs for the fastest. Without
type-based alias analysis the programs are right; what is left, ``noalias`` arguments and distinct
allocations, serves them well enough.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from wmsched.errors import EnvironmentProblem

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
    if computes_right(tvm, target):
        return False
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(SITE), *entries]))
    os.environ[MEND] = "1"
    _site().mend(tvm)
    if not computes_right(tvm, target):
        raise EnvironmentProblem(
            f"the TVM in {Path(str(tvm.__file__)).parent} compiles wrong programs for {target}: "
            "what unrolled statements write and a loop reads is lost, without type-based alias analysis too, "
            "and what is measured leaves work out; use another TVM (`wmsched setup-tvm`)"
        )
    return True


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


def _site() -> Any:
    """The module of the children's ``sitecustomize.py``, under a name that is not the interpreter's own."""
    spec = importlib.util.spec_from_file_location("wmsched_worker_site", SITE / "sitecustomize.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
