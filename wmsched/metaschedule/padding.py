"""Where a constructed schedule pads the input of a depthwise convolution: within its tiles.

The place is a decision of MetaSchedule's, and the one that the cost model ranks worst for several threads. A
padded image of its own goes through another core's cache, since rows are padded by one thread and channels
read by another; the padding of one register tile after the other does not.
"""

from __future__ import annotations

from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import IterVar
from tvm.tirx.analysis import undefined_vars

from wmsched.metaschedule.design_space import schedule_of
from wmsched.metaschedule.rules import space_generator

__all__ = ["pad_in_tiles"]

TILED = "SSRSRS"  # MetaSchedule's tiling on a processor: two levels of spatial loops stand outside
INLINE = -2  # MetaSchedule's number of a block that its consumer computes itself


def pad_in_tiles(candidate: Any, mod: Any, target: Any) -> Any:
    """Return the candidate with each padding of a depthwise convolution within the convolution's tiles.

    Parameters
    ----------
    candidate : MeasureCandidate
    mod : tvm.IRModule
        The task's program.

    Returns
    -------
    MeasureCandidate
        `candidate` itself where there is no such padding, it is inline, or TVM refuses the place.
    """
    trace = candidate.sch.trace
    decisions = dict(trace.decisions.items())
    moved = {
        place: location
        for place, location in _locations(trace, mod).items()
        if int(decisions[place]) not in (INLINE, location)
    }
    if not moved or TILED not in str(trace):
        return candidate
    context = ms.TuneContext(mod, target=target, space_generator=space_generator(target))
    schedule = schedule_of(mod, trace.insts, decisions | moved, context.space_generator.postprocs)
    return candidate if schedule is None else ms.MeasureCandidate(schedule, candidate.args_info)


def _locations(trace: Any, mod: Any) -> dict[Any, int]:
    """Return the loop within which each sampled location of such a padding belongs, by instruction."""
    names = {step.outputs[0]: str(step.attrs[0]) for step in trace.insts if step.kind.name == "GetSBlock"}
    found = {}
    for step in trace.insts:
        if step.kind.name == "SampleComputeLocation" and step.inputs[0] in names:
            spatial = _depthwise(mod, names[step.inputs[0]])
            if spatial:
                found[step] = 2 * spatial - 1
    return found


def _depthwise(mod: Any, name: str) -> int:
    """Return the number of spatial loops of the only reader of a block; 0 unless it keeps the channels.

    That is, unless its own innermost dimension is that of the block, as a depthwise convolution's.
    """
    schedule = Schedule(mod)
    try:
        block = schedule.get_sblock(name)
    except Exception:  # a block that the trace itself has made; TVM's errors have no common base
        return 0
    readers = schedule.get_consumers(block)
    if len(readers) != 1 or any(each.iter_type != IterVar.DataPar for each in schedule.get(block).iter_vars):
        return 0
    reader, padded = schedule.get(readers[0]), schedule.get(block).writes[0].source
    kinds = [int(each.iter_type) for each in reader.iter_vars]
    written = list(reader.writes[0].region)
    read = [list(each.region) for each in reader.reads if each.source.same_as(padded)]
    if IterVar.CommReduce not in kinds or len(read) != 1 or not written:
        return 0
    single = [each.var for each in reader.iter_vars if int(each.dom.extent) == 1]  # a group's only channel
    used = [var for var in undefined_vars(read[0][-1].min) if not any(var.same_as(one) for one in single)]
    return kinds.count(IterVar.DataPar) if len(used) == 1 and used[0].same_as(written[-1].min) else 0
