"""Every rule of the stock spaces, for processors and GPUs that nobody here has: space, trace, codec, states,
phi, score, and compiled code as far as it goes without the device."""

from __future__ import annotations

import json

import numpy as np
import programs as P
import pytest
from stock_spaces import CPUS, CUDA, cuda_source, rows
from tvm.target import Target

from data_builder.build.trace_replay import TraceReplay
from wmsched.features.gpus import gpu_of
from wmsched.features.step_features import FEATURE_NAMES
from wmsched.features.table import CARD
from wmsched.features.trace_features import TRACE_NAMES, trace_features
from wmsched.metaschedule.cost_model import WorldModelCostModel
from wmsched.metaschedule.trace_reader import steps_of_schedule, trace_json
from wmsched.metaschedule.workload import program_text, workload_of
from wmsched.schedules.traces import decode_steps, encode_actions, trace_of
from wmsched.toolchain.targets import target_text


def check(func, target, space, intrinsic, bundle):
    """All that is expected of candidates of a space; returns the first, the workload and phi by name."""
    with Target(target):  # TVM asks for it while it registers RISC-V's intrinsics
        ctx = P.context(func(), target, space)
        candidates = P.sampled(ctx, 3)
    assert candidates
    workload = workload_of(ctx.mod, target_text(ctx.target))
    assert any(stage.kind == "compute" for stage in workload.stages)
    assert workload == workload_of(ctx.mod, target_text(ctx.target))
    seen: set[str] = set()
    steps_list = []
    for candidate in candidates:
        steps, trace = steps_of_schedule(candidate.sch), trace_json(candidate.sch.trace)
        assert trace_of(steps) == trace and json.loads(json.dumps(trace)) == trace
        actions = decode_steps(steps, workload.stages)
        assert encode_actions(actions) == steps and all(action.text for action in actions)
        seen.update(row[2][0] for row in trace[0] if row[0] == "Tensorize")
        steps_list.append(steps)
    assert not intrinsic or any(intrinsic in name for name in seen), seen
    replayed(ctx.mod, steps_list[0], candidates[0])
    phi, extra, texts = trace_features(steps_list, workload)
    assert not np.isinf(phi).any() and not np.isinf(extra).any()
    assert [len(row) for row in texts] == [len(steps) for steps in steps_list]
    model = WorldModelCostModel(bundle)
    scores = model.predict(ctx, candidates)
    assert scores.shape == (len(candidates),) and ((scores > 0) & (scores <= 1)).all()
    assert model.problems == {}
    told = dict(zip(FEATURE_NAMES, phi[0])) | dict(zip(TRACE_NAMES, extra[0]))
    counted = [value for name, value in told.items() if name.startswith(("count_", "steps", "trace_blocks"))]
    assert np.isfinite(counted).all() and told["steps"] == len(steps_list[0])
    return candidates[0], told


def replayed(mod, steps, candidate) -> None:
    """Every prefix of the steps gives a program, and all of them the candidate's."""
    texts: dict[str, str] = {}
    hashes = TraceReplay(mod, on_text=texts.__setitem__)(steps)
    assert len(hashes) == len(steps) + 1 and set(hashes) == set(texts)
    assert texts[hashes[0]] == program_text(mod)
    # A database writes true as 1, and so do we.
    last = [text.replace(": True}", ": 1}") for text in (texts[hashes[-1]], program_text(candidate.sch.mod))]
    assert last[0] == last[1]


@pytest.mark.parametrize(("func", "target", "intrinsic"), [pytest.param(*r[1:], id=r[0]) for r in CPUS])
def test_every_space_of_a_processor(func, target, intrinsic, bundle) -> None:
    _, told = check(func, target, "from-target", intrinsic, bundle)
    assert (told["trace_tensorized"] > 0) == bool(intrinsic)
    assert all(np.isnan(told[name]) for name in CARD.names)


@pytest.mark.parametrize(("func", "target", "space", "intrinsic", "compiles"), rows(CUDA))
def test_every_space_of_a_gpu(func, target, space, intrinsic, compiles, bundle) -> None:
    candidate, told = check(func, target, space, intrinsic, bundle)
    gpu = gpu_of(target)
    assert gpu is not None and told["gpu_capability"] == pytest.approx(gpu.capability)
    if intrinsic:
        assert told["trace_tensorized"] >= 3  # load, multiply, store
    elif func is not P.constant:
        assert told["count_ann_bind"] >= 2
    if compiles:
        source = cuda_source(candidate.sch.mod, target)
        assert "__global__ void" in source and "threadIdx.x" in source
        assert not intrinsic or "nvcuda::wmma::mma_sync" in source
