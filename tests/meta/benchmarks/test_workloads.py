"""The representatives in TensorIR are AutoScheduler's tasks: the same operations, and the right numbers."""

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.cost_model import RandomModel

from benchmarks import leak, suites
from benchmarks.tune.meta import keys, stock, workloads
from benchmarks.tune.meta.verify import TOLERANCE, Verifier
from wmsched import zoo
from wmsched.base.errors import UnknownName
from wmsched.model import bundles

ROWS = {row["type"]: row for row in zoo.representatives()}


@pytest.mark.parametrize("kind", [entry.type for entry in suites.REPRESENTATIVES])
def test_a_representative_has_the_shapes_and_operations_of_autoschedulers_task(kind):
    module = workloads.module(kind)
    function = module["main"]
    shapes = tuple(tuple(map(int, parameter.shape)) for parameter in function.params)
    assert shapes == suites.BY_TYPE[kind].shapes
    expected = ROWS[kind]["flop_ct"]
    if expected > 0:  # TVM 0.16 does not count those of the adaptive pooling
        assert estimate_tir_flops(module) == expected


def test_the_zoo_has_the_keys_of_metaschedules_datasets_and_no_shipped_bundle_has_seen_them():
    assert {row["type"]: row["tensorir_key"] for row in zoo.representatives()} == keys.keys()
    for name in ("x86-meta", "cuda-meta"):
        fingerprint = leak.read_fingerprint(bundles.find(name))
        leak.check(fingerprint, zoo.representatives(), model=name)


def channels_first(x):
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))


def conv_add(residual, data, weight, bias):
    y = functional.conv2d(channels_first(data), weight.permute(3, 2, 0, 1)).permute(0, 2, 3, 1)
    return y + bias + residual


def depthwise(data, weight, bias):
    y = functional.conv2d(channels_first(data), weight.permute(2, 3, 0, 1), padding=1, groups=data.shape[-1])
    return (y.permute(0, 2, 3, 1) + bias).clip(0, 6)


REFERENCES = {
    "layernorm-mean": lambda x: x.mean(-1, keepdim=True),
    "layernorm-variance": lambda x, mean: ((x - mean) ** 2).mean(-1, keepdim=True),
    "softmax": lambda x: functional.softmax(x, -1),
    "attention-value": lambda p, v: p @ v.transpose(1, 2),
    "attention-qk": lambda q, k, mask: q @ k.transpose(1, 2) + mask,
    "ffn": lambda x, w, b: functional.gelu(x @ w.T + b),
    "avgpool2d": lambda x: x.mean((1, 2), keepdim=True),
    "maxpool2d": lambda x: functional.max_pool2d(channels_first(x), 3, 2, 1).permute(0, 2, 3, 1),
    "conv2d-add": conv_add,
    "depthconv-relu": depthwise,
}


@pytest.mark.parametrize("kind", REFERENCES)
def test_a_representative_computes_what_torch_does(kind):
    shapes = suites.BY_TYPE[kind].shapes
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes[:-1]]
    built = tvm.compile(workloads.module(kind), target=stock.target(""))
    out = tvm.runtime.empty(shapes[-1], "float32")
    built["main"](*map(tvm.runtime.tensor, inputs), out)
    expected = REFERENCES[kind](*map(torch.from_numpy, inputs)).numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-3, atol=2e-3)


def test_what_is_no_representative_is_refused():
    with pytest.raises(UnknownName, match="conv2d-relu"):
        workloads.module("conv4d")


def test_a_cost_models_time_is_counted_and_nothing_else_changes():
    model, watch = stock.timed(RandomModel(seed=3))
    # the Python half, as C++ calls it; a real context takes half a minute of imports
    scores = model._inst.predict(None, [None] * 7)
    np.testing.assert_array_equal(scores, RandomModel(seed=3)._inst.predict(None, [None] * 7))
    assert watch.candidates == 7 and watch.predict_seconds > 0


def test_a_program_that_leaves_work_out_is_found() -> None:
    target = stock.target("")
    module = workloads.module("layernorm-mean")
    verifier = Verifier(module, target)
    right = tvm.compile(module, target=target)
    arguments = module["main"].params
    assert verifier.error(right, arguments) == 0
    wrong = tvm.compile(workloads.module("layernorm-mean"), target=target)

    class Lost:
        def __getitem__(self, name):
            def main(x, out):
                right[name](x, out)
                out.copyfrom(np.zeros(suites.BY_TYPE["layernorm-mean"].shapes[-1], "float32"))

            return main

    assert verifier.error(Lost(), arguments) == 1 > TOLERANCE
    assert verifier.error(wrong, arguments[:1]) is None  # of other arguments nothing is said
