"""ONNX models of 8-bit numbers, as onnxruntime's quantizers write them, compute what ONNX says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from built import built
from torch import nn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.importers.load import load  # noqa: E402
from wmsched.relax.importers.model import tensors  # noqa: E402
from wmsched.relax.importers.onnx_quantized import MICROSOFT, written_out  # noqa: E402
from wmsched.tune.latency import QUANTIZED, TOLERANCE, tolerance  # noqa: E402

DRAWS = np.random.default_rng(0)
U8, I32, F32 = TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT
IMAGE = DRAWS.integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)
MATRIX = DRAWS.integers(0, 256, (5, 8)).astype(np.uint8)


def signed(*shape):
    return DRAWS.integers(-128, 128, shape).astype(np.int8)


def scales(number):
    return np.linspace(0.001, 0.004, number).astype(np.float32)


def model_of(nodes, constants, data, kind, *, inputs=None):
    """A model of one input x and one output y; the constants are its initializers."""
    element = helper.np_dtype_to_tensor_dtype(data.dtype)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", element, data.shape), *(inputs or [])],
        [helper.make_tensor_value_info("y", kind, [None] * data.ndim)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def computed(folder, model, data):
    """What TVM computes of it."""
    onnx.save(model, folder / "m.onnx")
    (found,) = tensors(built(folder, load(str(folder / "m.onnx")), torch.from_numpy(data).clone()))
    return np.asarray(found)


def node(kind, inputs, output="y", **attributes):
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def own(kind, inputs, output="y", **attributes):
    return helper.make_node(kind, inputs.split(), [output], domain=MICROSOFT, **attributes)


WEIGHTS = {"w": signed(6, 2, 3, 3), "wz": np.zeros(6, np.int8), "ws": scales(6)}
INPUT = {"s": np.float32(0.02), "z": np.uint8(120)}
ONE, OUT = "x s z", "ys yz"  # a quantized tensor, how the output is rounded
OUTPUT = {"ys": np.float32(0.03), "yz": np.uint8(110)}
CASES = {
    "a convolution to whole numbers": (
        [node("ConvInteger", "x w z wz", group=2, pads=[1, 1, 1, 1], strides=[2, 1])],
        {**INPUT, **WEIGHTS, "wz": signed(6)},
        IMAGE,
        I32,
    ),
    "a product to whole numbers": (
        [node("MatMulInteger", "x w z wz")],
        {"w": signed(8, 3), "z": np.uint8(3), "wz": signed(3)},
        MATRIX,
        I32,
    ),
    "a product without zero points": ([node("MatMulInteger", "x w")], {"w": signed(8, 3)}, MATRIX, I32),
    "a dynamic product": (
        [
            node("DynamicQuantizeLinear", "x", "q"),
            node("MatMulInteger", "q w z wz", "t"),
            node("Cast", "t", "f", to=F32),
            node("Mul", "f s", "y"),
        ],
        {"w": signed(8, 3), "wz": np.int8(0)},
        DRAWS.standard_normal((5, 8)).astype(np.float32),
        F32,
    ),
    "a convolution, a scale for each channel, and a bias": (
        [node("QLinearConv", "x s z w ws wz ys yz b", group=2, pads=[0, 1, 0, 1])],
        {**INPUT, **WEIGHTS, **OUTPUT, "b": DRAWS.integers(-9000, 9000, 6).astype(np.int32)},
        IMAGE,
        U8,
    ),
    "a product, a scale for each column": (
        [node("QLinearMatMul", "x s z w ws wz ys yz")],
        {**INPUT, **OUTPUT, "w": signed(8, 3), "ws": scales(3), "wz": np.zeros(3, np.int8)},
        MATRIX,
        U8,
    ),
}
CASES["a dynamic product"][0][0].output.extend(["s", "z"])


@pytest.mark.parametrize("case", CASES)
def test_it_computes_what_onnx_does(case, tmp_path):
    nodes, constants, data, kind = CASES[case]
    model = model_of(nodes, constants, data, kind)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": data})
    found = computed(tmp_path, model, data)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    if kind == I32:
        assert (found == wanted).all()
    elif kind == U8:  # a number amid two steps may go either way
        assert np.abs(found.astype(int) - wanted).max() <= 1 and (found == wanted).mean() > 0.95
        assert wanted.std() > 3
    else:
        assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def real(value, scale, zero):
    return torch.from_numpy((np.asarray(value, np.float32) - np.float32(zero)) * np.float32(scale))


def rounded(value, scale, zero):
    return np.clip(np.round(value.numpy() / scale) + zero, 0, 255)


STEPS = {  # how it is called, what it does
    "QLinearAdd": (f"{ONE} {ONE} {OUT}", {}, lambda x: x + x),
    "QLinearMul": (f"{ONE} {ONE} {OUT}", {}, lambda x: x * x),
    "QLinearLeakyRelu": (f"{ONE} {OUT}", {"alpha": 0.1}, lambda x: nn.functional.leaky_relu(x, 0.1)),
    "QLinearSigmoid": (f"{ONE} {OUT}", {}, torch.sigmoid),
    "QLinearConcat": (f"{OUT} {ONE} {ONE}", {"axis": 1}, lambda x: torch.cat([x, x], 1)),
    "QLinearAveragePool": (
        f"{ONE} {OUT}",
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        lambda x: nn.functional.avg_pool2d(x, 2),
    ),
    "QLinearGlobalAveragePool": (f"{ONE} {OUT}", {}, lambda x: x.mean((2, 3), keepdim=True)),
    "QLinearSoftmax": (f"{ONE} {OUT}", {"axis": 1, "opset": 13}, lambda x: torch.softmax(x, 1)),
    "QLinearWhere": (f"c {ONE} o s z {OUT}", {}, lambda x: torch.where(CHOSEN, x, real(OTHER, 0.02, 120))),
}
EXACT = ("QLinearConcat", "QLinearMul", "QLinearWhere")  # nothing is added up in these
OTHER, CHOSEN = IMAGE[:, ::-1].copy(), torch.from_numpy(IMAGE > 100)
MORE = {"o": OTHER, "c": CHOSEN.numpy()}


@pytest.mark.parametrize("name", STEPS)
def test_onnxruntimes_own_operators(name, tmp_path):
    inputs, attributes, step = STEPS[name]
    constants = {key: value for key, value in MORE.items() if key in inputs.split()}
    model = model_of([own(name, inputs, **attributes)], {**INPUT, **OUTPUT, **constants}, IMAGE, U8)
    found = computed(tmp_path, model, IMAGE)
    wanted = rounded(step(real(IMAGE, 0.02, 120)), 0.03, 110)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1
    assert (found == wanted).mean() >= (1 if name in EXACT else 0.9)


def test_a_softmax_from_before_opset_13_is_over_all_axes_that_follow(tmp_path):
    constants = {**INPUT, "ys": np.float32(1 / 256), "yz": np.uint8(0)}
    layer = own("QLinearSoftmax", f"{ONE} {OUT}", axis=2, opset=11)
    found = computed(tmp_path, model_of([layer], constants, IMAGE, U8), IMAGE)
    wanted = rounded(torch.softmax(real(IMAGE, 0.02, 120).flatten(2), -1), 1 / 256, 0).reshape(IMAGE.shape)
    assert np.abs(found - wanted).max() <= 1 and (found == wanted).mean() > 0.9


@pytest.mark.parametrize("zero", ["z", ""])
def test_without_a_zero_point_the_output_is_signed_where_the_input_is(zero, tmp_path):
    data = signed(4, 8)
    layer = helper.make_node("QLinearSigmoid", ["x", "s", zero, "ys"], ["y"], domain=MICROSOFT)
    constants = {"s": np.float32(0.02), "z": np.int8(3), "ys": np.float32(0.01)}
    found = computed(tmp_path, model_of([layer], constants, data, TensorProto.INT8), data)
    wanted = rounded(torch.sigmoid(real(data, 0.02, 3 if zero else 0)), 0.01, 0)
    assert found.dtype == np.int8 and np.abs(found - wanted).max() <= 1


def test_a_type_that_nothing_says_is_not_guessed():
    layers = [
        node("Identity", "x", "i"),
        helper.make_node("QLinearSigmoid", ["i", "s", "", "ys"], ["y"], domain=MICROSOFT),
    ]
    model = model_of(layers, {"s": np.float32(0.02), "ys": np.float32(0.01)}, IMAGE, U8)
    assert written_out(model) is model


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_a_number_amid_two_steps_is_rounded_to_the_even_one(axis, tmp_path):
    halves = (np.arange(-12, 12, dtype=np.float32) + 0.5).reshape(4, 6) / 2
    size = () if axis is None else halves.shape[axis]
    scale = np.full(size, 0.5, np.float32)
    constants = {"s": scale, "z": np.zeros(size, np.int8)}
    layer = node("QuantizeLinear", "x s z", **({} if axis is None else {"axis": axis}))
    model = model_of([layer], constants, halves, TensorProto.INT8)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": halves})
    assert np.array_equal(wanted, np.rint(2 * halves).astype(np.int8))
    assert np.array_equal(computed(tmp_path, model, halves), wanted)


@pytest.mark.parametrize("rounds", [True, False])
def test_onnxruntimes_dense_layer(rounds, tmp_path):
    """With a bias, a scale for each output; without an output's scale it gives float32."""
    weight, bias = signed(3, 8), DRAWS.integers(-3000, 3000, 3).astype(np.int32)
    constants = {**INPUT, "w": weight, "ws": scales(3), "wz": np.zeros(3, np.int8), "b": bias}
    inputs = "x s z w ws wz b" + (" ys yz" if rounds else "")
    layer = own("QGemm", inputs, transB=1, alpha=1.0)
    model = model_of([layer], constants | (OUTPUT if rounds else {}), MATRIX, U8 if rounds else F32)
    wide = (MATRIX.astype(np.int64) - 120) @ weight.T.astype(np.int64) + bias
    wanted = wide * (np.float32(0.02) * scales(3))
    found = computed(tmp_path, model, MATRIX)
    if rounds:
        assert np.abs(found - rounded(torch.from_numpy(wanted), 0.03, 110)).max() <= 1
    else:
        assert found.dtype == np.float32 and np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_what_is_written_otherwise_stays_and_is_named(tmp_path):
    """A weight's scales that are an input may be one or many: which, no file says."""
    given = [helper.make_tensor_value_info("ws", F32, ("many",))]
    constants = {**INPUT, **OUTPUT, "w": WEIGHTS["w"], "wz": WEIGHTS["wz"]}
    nodes = [node("QLinearConv", "x s z w ws wz ys yz", group=2)]
    model = model_of(nodes, constants, IMAGE, U8, inputs=given)
    assert written_out(model) is model
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(WmschedError, match="input ws has the shape many"):
        load(str(tmp_path / "m.onnx"))


def test_channels_that_come_last_are_not_taken_for_the_first():
    layer = own("QLinearGlobalAveragePool", "x s z ys yz", channels_last=1)
    model = model_of([layer], {**INPUT, **OUTPUT}, IMAGE, U8)
    assert written_out(model) is model


def test_outputs_may_be_a_rounding_off(tmp_path):
    """What is summed in another order may round to the next number of 8 bits."""
    nodes, constants, data, kind = CASES["a dynamic product"]
    onnx.save(model_of(nodes, constants, data, kind), tmp_path / "m.onnx")
    x = torch.from_numpy(data)
    assert tolerance([x], load(str(tmp_path / "m.onnx")).module) == QUANTIZED
    onnx.save(model_of([node("Relu", "x")], {}, data, kind), tmp_path / "plain.onnx")
    assert tolerance([x], load(str(tmp_path / "plain.onnx")).module) == TOLERANCE


def test_a_model_without_them_is_the_same_and_none_is_changed():
    plain = model_of([node("Relu", "x")], {}, IMAGE.astype(np.float32), F32)
    assert written_out(plain) is plain
    nodes, constants, data, kind = CASES["a product to whole numbers"]
    model = model_of(nodes, constants, data, kind)
    before = model.SerializeToString()
    onnx.checker.check_model(written_out(model))
    assert model.SerializeToString() == before
