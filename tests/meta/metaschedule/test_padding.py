"""A constructed depthwise convolution pads its input within its tiles, and computes the same."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.metaschedule.padding import INLINE, pad_in_tiles
from wmsched.metaschedule.rules import space_generator
from wmsched.toolchain.targets import meta_host_target

TARGET = tvm.target.Target(meta_host_target())


def depthwise() -> tvm.IRModule:
    x = te.placeholder((1, 12, 12, 32), "float32", name="x")
    w = te.placeholder((3, 3, 32, 1), "float32", name="w")
    made = topi.nn.relu(topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1))
    return tvm.IRModule({"main": te.create_prim_func([x, w, made])})


def dense() -> tvm.IRModule:
    x = te.placeholder((1, 12, 12, 8), "float32", name="x")
    w = te.placeholder((3, 3, 8, 16), "float32", name="w")
    return tvm.IRModule({"main": te.create_prim_func([x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)])})


def candidates(mod, place: int):
    """Those of the spaces whose padding has a location, which is `place`."""
    import_intrinsics(TARGET)
    context = ms.TuneContext(
        mod,
        target=TARGET,
        space_generator=space_generator(TARGET),
        search_strategy="evolutionary",
        rand_state=3,
    )
    for design in context.generate_design_space():
        steps = design.trace.insts
        locations = [step for step in steps if step.kind.name == "SampleComputeLocation"]
        if not locations or "SSRSRS" not in str(design.trace):
            continue
        decisions = dict(design.trace.decisions.items()) | {locations[0]: place}
        schedule = Schedule(mod, seed=1)
        Trace(steps, decisions).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        assert all(rule.apply(schedule) for rule in context.space_generator.postprocs)
        yield ms.MeasureCandidate(schedule, [])


def location(candidate) -> int:
    (step,) = (step for step in candidate.sch.trace.insts if step.kind.name == "SampleComputeLocation")
    return int(candidate.sch.trace.decisions[step])


def run(schedule, *shapes):
    rng = np.random.default_rng(1)
    given = [tvm.runtime.tensor(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
    tvm.compile(schedule.mod, target=TARGET)["main"](*given)
    return given[-1].numpy()


def test_a_padded_image_of_its_own_is_moved_within_the_tiles() -> None:
    mod, shapes = depthwise(), ((1, 12, 12, 32), (3, 3, 32, 1), (1, 12, 12, 32))
    seen = 0
    for candidate in candidates(mod, -1):
        found = pad_in_tiles(candidate, mod, TARGET)
        assert location(candidate) == -1 and location(found) == 7
        np.testing.assert_allclose(run(found.sch, *shapes), run(candidate.sch, *shapes), rtol=1e-5, atol=1e-5)
        seen += 1
    assert seen


def test_what_is_inline_or_read_by_a_dense_convolution_stays() -> None:
    inline = list(candidates(depthwise(), INLINE))
    elsewhere = list(candidates(dense(), -1))
    assert inline and elsewhere
    assert all(pad_in_tiles(one, depthwise(), TARGET) is one for one in inline)
    assert all(pad_in_tiles(one, dense(), TARGET) is one for one in elsewhere)
