"""Which recorded schedules a TVM with wrong alias tags may have compiled wrong. Needs AutoScheduler's TVM.

TVM 0.16 as `wmsched setup-tvm` installs it did, before `wmsched.toolchain.alias_tags` mended it, so logs made
with it hold times of programs that left work out. What its code generator does wrong shows in the lowered
program: it gives a vector access at an index that is no number the alias tag of index 0. Wherever a buffer is
accessed so, and by a number beyond that vector as well, and one of the two stores, LLVM may take them for
different memory.
"""

from __future__ import annotations

from typing import Any

from data_builder.base.replay import TVM_REFUSES, loadable
from wmsched.schedules.grammar import AnnotationStep, PragmaStep
from wmsched.schedules.loop_nest import UNROLL, VECTORIZE
from wmsched.schedules.types import Record
from wmsched.toolchain.resolve import autoscheduler_tvm
from wmsched.toolchain.worker_site.sitecustomize import mistagged_buffers


def may_be_miscompiled(dag: Any, record: Record) -> bool:
    """Lower the whole schedule and look for such a pair of accesses; some 0.04 s where it is unrolled.

    Parameters
    ----------
    dag : tvm.auto_scheduler.ComputeDAG
    record : Record

    Returns
    -------
    bool
        False too where TVM cannot lower it: then it was never compiled.
    """
    if not (_vectorized(record) and _unrolled(record)):
        return False  # no vector accesses, or none at an index that is a number
    tvm = autoscheduler_tvm()
    load = tvm.auto_scheduler.measure_record.load_record_from_string
    try:
        loaded, _ = load(loadable(record))
        schedule, tensors = dag.apply_steps_from_state(loaded.state, record.layout_rewrite)
        # Without the search for common subexpressions, nine tenths of the time: it names parts of indices
        # that are no numbers, and those are no numbers by name either.
        with tvm.transform.PassContext(config={"tir.disable_cse_tir": True}):
            module = tvm.lower(schedule, tensors)
    except TVM_REFUSES:
        return False
    return any(mistagged_buffers(tvm.tir, function.body) for function in module.functions.values())


def _vectorized(record: Record) -> bool:
    return VECTORIZE in _annotations(record)


def _unrolled(record: Record) -> bool:
    pragmas = [PragmaStep(*step).pragma for step in record.steps if step[0] == "PR"]
    return UNROLL in _annotations(record) or any(not pragma.endswith("$0") for pragma in pragmas)


def _annotations(record: Record) -> set[int]:
    return {AnnotationStep(*step).annotation for step in record.steps if step[0] == "AN"}
