"""What numpy computes of a model's weights is what TVM would have computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from built import TARGET, Of, built, model_of
from torch import nn
from tvm import relax

from wmsched.relax.passes import channels_last, fold_constants, pipeline


def calls(module):
    """Names of the operators that are left."""
    found = []

    def visit(node):
        if isinstance(node, relax.Call) and isinstance(node.op, tvm.ir.Op):
            found.append(str(node.op.name).removeprefix("relax."))

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


def computed(data, compute):
    """The operators that `fold` leaves of a function of a constant, and its value where it is one then."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(compute(builder, relax.const(data)))
        builder.emit_func_output(result)
    folded = fold_constants.fold(builder.get())
    value = folded["main"].body.blocks[0].bindings[-1].value
    return calls(folded), value.value.numpy() if isinstance(value, tvm.ir.Constant) else None


WHOLE = np.random.default_rng(1).integers(0, 3, (2, 3, 4)).astype("int32")


@pytest.mark.parametrize(
    "compute",
    [
        lambda b, x: relax.op.add(x, relax.const(-5, "int32")),
        lambda b, x: relax.op.less(x, relax.const(1, "int32")),
        lambda b, x: relax.op.where(b.emit(relax.op.equal(x, x)), x, relax.const(7, "int32")),
        lambda b, x: relax.op.bitwise_and(
            b.emit(relax.op.greater_equal(x, relax.const(1, "int32"))),
            b.emit(relax.op.full((), relax.const(True))),
        ),
        lambda b, x: relax.op.astype(x, "int64"),
        lambda b, x: relax.op.broadcast_to(x, (5, 2, 3, 4)),
        lambda b, x: relax.op.strided_slice(x, (1, 2), (1, 0), (9, 3), (1, 2)),
        lambda b, x: relax.op.take(relax.const(np.arange(9.0, dtype="float32").reshape(3, 3)), x, axis=0),
        lambda b, x: relax.op.gather_elements(x, b.emit(relax.op.subtract(x, x)), axis=2),
        lambda b, x: relax.op.multiply(x, b.emit(relax.op.arange(2, 10, 2, "int32"))),
    ],
)
def test_positions_and_masks_are_what_tvm_computes(compute):
    left, ours = computed(WHOLE, lambda builder, x: builder.normalize(compute(builder, x)))
    assert not left
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(WHOLE.shape, "int32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(compute(builder, x)))
        builder.emit_func_output(result)
    made = tvm.relax.build(relax.transform.LegalizeOps()(builder.get()), "llvm")
    theirs = relax.VirtualMachine(made, tvm.cpu())["main"](tvm.runtime.tensor(WHOLE)).numpy()
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "compute",
    [
        lambda b, x: relax.op.take(x, relax.const([-1]), axis=0),  # TVM has its own idea of these
        lambda b, x: relax.op.take(x, relax.const([9]), axis=0),
        lambda b, x: relax.op.strided_slice(x, (0,), (1,), (0,), (-1,)),
        lambda b, x: relax.op.broadcast_to(
            x, (1 << 20, 2, 3, 4)
        ),  # as many bytes as a library should not have
    ],
)
def test_what_numpy_has_otherwise_is_left(compute):
    left, ours = computed(WHOLE, lambda builder, x: builder.normalize(compute(builder, x)))
    assert left and ours is None


@pytest.mark.parametrize(
    "compute",
    [
        lambda b, x: relax.op.permute_dims(x),
        lambda b, x: relax.op.permute_dims(x, (0, 2, 1)),
        lambda b, x: relax.op.reshape(x, (6, 4)),
        lambda b, x: relax.op.expand_dims(x, (0, -1)),
        lambda b, x: relax.op.divide(x, relax.op.sqrt(b.emit(relax.op.add(x, relax.const(1e-5))))),
        lambda b, x: relax.op.subtract(relax.const(0.1), relax.op.negative(x)),
        lambda b, x: relax.op.add(x, tvm.tirx.FloatImm("float32", 1e-5)),
    ],
)
def test_as_tvm_computes_it(compute):
    data = np.random.default_rng(0).random((2, 3, 4), dtype="float32")
    left, ours = computed(data, lambda builder, x: builder.normalize(compute(builder, x)))
    assert not left
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(compute(builder, x)))
        builder.emit_func_output(result)
    machine = tvm.relax.VirtualMachine(tvm.compile(builder.get(), TARGET), tvm.cpu())
    theirs = machine["main"](tvm.runtime.tensor(data, tvm.cpu())).numpy()
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    ("data", "compute"),
    [
        (np.ones((2, 3), "float32"), lambda b, x: relax.op.exp(x)),  # numpy's is another one
        (np.ones((2, 3), "float16"), lambda b, x: relax.op.add(x, x)),
        (np.ones((2, 3), "int64"), lambda b, x: relax.op.divide(x, x)),
        (np.ones((2, 3), "float32"), lambda b, x: relax.op.astype(x, "float16")),
    ],
)
def test_the_rest_is_left_to_tvm(data, compute):
    left, value = computed(data, lambda builder, x: compute(builder, x))
    assert len(left) == 1
    assert value is None


def test_batch_normalisation_is_folded_and_the_model_computes_the_same(tmp_path, monkeypatch):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    layers[1].running_mean.uniform_()
    layers[1].running_var.uniform_(0.5, 2)
    model = model_of(layers, torch.randn(1, 3, 8, 8))
    (ours,) = built(tmp_path, model, *model.inputs.values())
    seen = []
    right = fold_constants.fold
    monkeypatch.setattr(fold_constants, "fold", lambda module, **_: seen.append(module) or module)
    (tmp_path / "theirs").mkdir()
    (theirs,) = built(tmp_path / "theirs", model, *model.inputs.values())
    assert (ours.numpy() == theirs.numpy()).all()
    (before,) = seen
    operators = calls(right(before))
    assert "sqrt" in calls(before)
    assert "sqrt" not in operators
    channels_last.channels_last(model.module)
    assert len(seen) == 2


def test_the_rest_is_folded_to_what_tvm_folds_it_to():
    data = np.random.default_rng(2).standard_normal((2, 3)).astype("float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            root = builder.emit(relax.op.exp(relax.const(data)))
            both = builder.emit(relax.op.concat([root, relax.const(data)]))
            filled = builder.emit(relax.op.full_like(x, relax.const(3.0)))
            own = builder.emit(relax.op.exp(relax.op.add(x, filled)))
            result = builder.emit_output(relax.Tuple([both, own]))
        builder.emit_func_output(result)
    module = builder.get()

    def simple(*passes):
        once = relax.transform.CanonicalizeBindings()
        return tvm.transform.Sequential([*passes, once, relax.transform.DeadCodeElimination()])(module)

    found = simple(fold_constants.folding(whole=True))
    assert calls(found) == ["add", "exp"]
    tvm.ir.assert_structural_equal(found, simple(relax.transform.FoldConstant()))


def test_what_hangs_on_inputs_or_has_symbolic_shapes_stays():
    model = model_of(Of(lambda x: (x.t() + 1).sqrt()), torch.rand(2, 3))
    folded = fold_constants.fold(model.module)
    assert sorted(calls(folded)) == sorted(calls(model.module))
    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.permute_dims(x))
        builder.emit_func_output(result)
    assert calls(fold_constants.fold(builder.get())) == ["permute_dims"]
    assert pipeline.prepare(builder.get(), TARGET)
