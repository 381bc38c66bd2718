"""Conversion of TensorIR to workloads and program texts (needs MetaSchedule's TVM).

A workload has the same `types.Stage` list as AutoScheduler's compute DAG: arguments first, then one stage a
block, with iterators, linear accesses and operation counts. phi therefore reads both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

import tvm
import tvm.sym

from wmsched.base.cores import requested_threads, usable_cores
from wmsched.codegen.tir_reader import _function, stages_of
from wmsched.features.hardware import hardware_parameters
from wmsched.features.target_options import is_gpu
from wmsched.schedules.types import Stage, Workload

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_BLOCK = re.compile(r"sblock\(\"(\w+)\"\)")  # a trace names blocks


def workload_of(mod: Any, target: str, **labels: Any) -> Workload:
    """Return the Workload of a module with one PrimFunc (``main`` if there are several).

    The key depends on the computation, not on names or the version of TVM.

    Parameters
    ----------
    mod : tvm.IRModule
        Unscheduled.
    target : str
        As `target_text` writes it.
    **labels
        network, desc and weight. Threads come from TVM_NUM_THREADS or OMP_NUM_THREADS, if the target has as
        many cores as this process.
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
    # this machine's environment does not apply to a remote target with another number of cores
    given = requested_threads(os.environ) if hardware[0] == usable_cores() else 0
    if given and not is_gpu(target):
        labels["threads"] = given
    return Workload(key, target, hardware, stages, _flops(mod, stages), **labels)


def kind_of(mod: Any, target: str) -> str:
    """Return what programs share that differ in constants alone: a schedule of one is one of the other.

    Such are a quantized model's layers of one shape, each with its own scales and zero points.

    Parameters
    ----------
    mod, target
        As of `workload_of`.
    """
    text = program_text(mod)
    shared = [workload_of(mod, target).key, _NUMBER.sub("#", text), *_BLOCK.findall(text)]
    return hashlib.sha256("\n".join(shared).encode()).hexdigest()


def program_text(mod: Any) -> str:
    """Return the TensorIR of a module without the leading imports."""
    lines = mod.script().splitlines()
    body = next((n for n, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return "\n".join(line[4:] if line.startswith("    ") else line for line in lines[body:])


def _flops(mod: Any, stages: tuple[Stage, ...]) -> float:
    """Return the arithmetic operations of the program; counted by iterations if TVM cannot."""
    try:
        return float(tvm.s_tir.analysis.estimate_tir_flops(mod))
    except Exception:  # symbolic shapes, or operations that TVM does not count
        total = 0.0
        for s in stages:
            iterations = 1.0
            for i in s.iters:
                iterations *= i.extent
            total += iterations * max(1, sum(n for name, n in s.ops if name != "Cast"))
        return total
