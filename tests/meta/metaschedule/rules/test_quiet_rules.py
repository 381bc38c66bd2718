"""A pooling layer with the rules registered that TVM would warn of is scheduled like any other block.

A rule that gave the schedule back with its mark left the pool to no rule at all: plain loops on one core.
"""

from __future__ import annotations

import programs as P
import pytest
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.rules.quiet_rules import NAMES
from wmsched.metaschedule.trace_reader import trace_json
from wmsched.schedules.grammar import Instruction

PARALLEL, VECTORIZE = "meta_schedule.parallel", "meta_schedule.vectorize"
CPU = Target(P.CPU)


def pool(kind: str):
    """A pooling of each kind that topi marks, of 64 channels of 56 x 56 pixels."""
    data = te.placeholder((1, 64, 56, 56), name="data")
    how = kind.removeprefix("adaptive_pool_").removeprefix("pool_")
    if kind.startswith("adaptive"):
        return te.create_prim_func([data, topi.nn.adaptive_pool(data, (7, 7), how)])
    out = topi.nn.pool2d(data, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), how)
    return te.create_prim_func([data, out])


def marks(design) -> set[str]:
    """Annotations that postprocessors turn into parallel and vectorised loops."""
    instructions, _ = trace_json(design.trace)
    found = [Instruction(*fields) for fields in instructions]
    return {str(one.attributes[0]) for one in found if one.kind == "Annotate"}


@pytest.mark.parametrize("kind", NAMES)
def test_a_pool_is_scheduled(kind: str) -> None:
    program = pool(kind)
    assert f"meta_schedule.{kind}" in program.script()  # as topi marks it: without the mark nothing is shown
    import_intrinsics(CPU)  # as every search does; it registers the rules
    context = ms.TuneContext(program, target=CPU, space_generator="post-order-apply", num_threads=1)
    designs = context.generate_design_space()
    assert designs and all({PARALLEL, VECTORIZE} <= marks(design) for design in designs)
    for design in designs:
        assert f"meta_schedule.{kind}" not in design.mod.script()
