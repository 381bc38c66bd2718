"""Workloads and program states out of TensorIR (needs MetaSchedule's TVM).

The same `types.Stage` list as for AutoScheduler's compute DAG: arguments first, then one stage a block, with
iterators, linear accesses and operation counts. So phi reads both alike.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import tvm
import tvm.sym

from wmsched.base.cores import requested_threads, usable_cores
from wmsched.codegen.tir_reader import _function, stages_of
from wmsched.features.hardware import hardware_parameters, is_gpu
from wmsched.schedules.types import Stage, Workload


def workload_of(mod: Any, target: str, **labels: Any) -> Workload:
    """The Workload of a module with one PrimFunc (called ``main`` where there are several).

    Its key says what is computed and not what it is called: two modules that differ in names alone are one
    workload, in whatever TVM they were made.

    Parameters
    ----------
    mod : tvm.IRModule, before any scheduling
    target : str
        As `target_text` writes it.
    **labels
        network, desc and weight. Threads are those of the environment's TVM_NUM_THREADS or OMP_NUM_THREADS,
        where the target has as many cores as this process.
    """
    func = _function(mod)
    stages, exact = stages_of(func)
    named = [
        [s.kind, [[i.extent, i.kind] for i in s.iters], [[a.stage, a.dims, a.shape] for a in s.reads], s.ops,
         s.shape, s.dtype_bytes]
        for s in stages
    ]  # fmt: skip
    whole = json.dumps(named) if exact else program_text(mod)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    shapes = [list(s.shape) for s in stages if s.kind == "placeholder"]
    key = json.dumps(["tir", digest, *shapes], separators=(",", ":"))
    hardware = hardware_parameters(target)
    # of this machine's target: a remote one, with another number of cores, is not told by the variable here
    given = requested_threads(os.environ) if hardware[0] == usable_cores() else 0
    if given and not is_gpu(target):
        labels["threads"] = given
    return Workload(key, target, hardware, stages, _flops(mod, stages), **labels)


def program_text(mod: Any) -> str:
    """TensorIR of a module, without the imports that every print begins with."""
    lines = mod.script().splitlines()
    body = next((n for n, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return "\n".join(line[4:] if line.startswith("    ") else line for line in lines[body:])


def _flops(mod: Any, stages: tuple[Stage, ...]) -> float:
    """Arithmetic operations of the whole program; a count by iterations where TVM has none."""
    try:
        return float(tvm.s_tir.analysis.estimate_tir_flops(mod))
    except Exception:  # shapes that are not constant, and operations that it has no number for
        total = 0.0
        for s in stages:
            iterations = 1.0
            for i in s.iters:
                iterations *= i.extent
            total += iterations * max(1, sum(n for name, n in s.ops if name != "Cast"))
        return total
