"""ONNX's operators where TVM's importer errs: the right value, or a refusal that names the operator."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.onnx_backend import Backend  # noqa: E402

F32, NAN, INF = np.float32, np.nan, np.inf
ODD = np.array([NAN, -INF, INF, -1, 7], F32)


def model_of(nodes, inputs, shapes, constants=None, *, opset=17, functions=(), domains=()):
    """A model of nodes; its outputs' names, with element type and shape."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
            for name, data in inputs.items()
        ],
        [helper.make_tensor_value_info(name, *kind) for name, kind in shapes.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=list(functions))


def computed(kind, inputs, outputs, constants=None, *, opset=17, **attributes):
    """Outputs of one node; `outputs` has their arrays, whose types and shapes are declared."""
    names = [*inputs, *(constants or {})]
    found = [f"out{k}" for k in range(len(outputs))]
    shapes = {
        name: (helper.np_dtype_to_tensor_dtype(np.asarray(one).dtype), np.asarray(one).shape)
        for name, one in zip(found, outputs)
    }
    node = helper.make_node(kind, names, found, **attributes)
    return Backend.run_model(model_of([node], inputs, shapes, constants, opset=opset), list(inputs.values()))


def ints(*values):
    return np.array(values, np.int32)


LEAST = np.iinfo(np.int32).min
CASES = {
    "relu": ("Relu", {"x": ODD}, np.array([NAN, 0, INF, 0, 7], F32), {}, {}),
    "clip": (
        "Clip", {"x": ODD}, np.array([NAN, 0, 6, 0, 6], F32), {"low": F32(0), "high": F32(6)}, {},
    ),
    "max": ("Max", {"x": ODD, "z": np.zeros(5, F32)}, np.array([NAN, 0, INF, 0, 7], F32), {}, {}),
    "min": ("Min", {"z": np.zeros(5, F32), "x": ODD}, np.array([NAN, -INF, 0, -1, 0], F32), {}, {}),
    "sign": ("Sign", {"x": ODD}, np.array([NAN, -1, 1, -1, 1], F32), {}, {}),
    "inf below": ("IsInf", {"x": ODD}, ODD == -INF, {}, {"detect_positive": 0}),
    "least row": ("ReduceMax", {"x": np.full(3, -INF, F32)}, np.array([-INF], F32), {}, {}),
    "nan row": ("ReduceMax", {"x": ODD}, np.array([NAN], F32), {}, {}),
    "empty set": ("ReduceMin", {"x": np.zeros((0, 2), F32)}, np.full((1, 2), INF, F32), {}, {"axes": [0]}),
    "mean": ("ReduceMean", {"x": ints(5, -4, -3)}, ints(0), {}, {}),
    "unsigned": ("ArgMax", {"x": np.array([3, 250, 9], np.uint8)}, np.array([1]), {}, {}),
    "last": ("ArgMax", {"x": ints(9, 9, 1)}, np.array([1]), {}, {"select_last_index": 1}),
    "quotient": (
        "Div", {"a": ints(7, -7, LEAST, 5), "b": ints(0, 2, -1, -3)}, ints(0, -3, LEAST, -1), {}, {},
    ),
    "modulus": ("Mod", {"a": ints(7, -7, LEAST, 5), "b": ints(0, 2, -1, -3)}, ints(0, 1, 0, -1), {}, {}),
    "remainder": ("Mod", {"a": ints(-7, 7), "b": ints(2, -3)}, ints(-1, 1), {}, {"fmod": 1}),
    "shift": (
        "BitShift", {"a": np.array([255, 4], np.uint8), "b": np.array([8, 1], np.uint8)},
        np.array([0, 2], np.uint8), {}, {"direction": "RIGHT"},
    ),
    "power": ("Pow", {"a": ints(3, -2, 2), "b": ints(4, 3, 31)}, ints(81, -8, LEAST), {}, {}),
    "depth": (
        "SpaceToDepth", {"x": np.arange(16, dtype=F32).reshape(1, 1, 4, 4)},
        np.arange(16, dtype=F32).reshape(2, 2, 2, 2).transpose(1, 3, 0, 2).reshape(1, 4, 2, 2), {},
        {"blocksize": 2},
    ),
    "expand": ("Expand", {"x": np.ones((1, 2), F32)}, np.ones((3, 2), F32), {"s": np.array([3, 1])}, {}),
    "resize": (
        "Resize", {"x": np.arange(4, dtype=F32).reshape(1, 1, 4)}, np.array([[[0.33333333, 2.0]]], F32),
        {"roi": np.zeros(0, F32), "scales": np.array([1, 1, 0.6], F32)}, {"mode": "linear"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_its_value_is_the_standard_s(name):
    kind, inputs, wanted, constants, attributes = CASES[name]
    (found,) = computed(kind, inputs, [wanted], constants, **attributes)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_largest_are_found_among_nan_and_unsigned_numbers():
    k = {"k": np.array([2])}
    values, places = computed("TopK", {"x": ODD}, [ODD[:2], np.zeros(2, np.int64)], k)
    np.testing.assert_array_equal(values, [NAN, INF])
    assert places.tolist() == [0, 2]
    data = np.array([1, 2**63 + 5, 7], np.uint64)
    values, places = computed("TopK", {"x": data}, [data[:2], np.zeros(2, np.int64)], k)
    assert values.tolist() == [2**63 + 5, 7] and places.tolist() == [1, 2]


def test_maxima_come_with_their_places_and_a_short_last_window_counts_what_it_has():
    image = np.array([[[[1, 9, 3], [4, 2, 8], [7, 5, 6]]]], F32)
    most = np.array([[[[9, 9], [7, 8]]]], F32)
    found = computed(
        "MaxPool", {"x": image}, [most, most.astype(np.int64)], kernel_shape=[2, 2], strides=[1, 1]
    )
    np.testing.assert_array_equal(found[0], most)
    assert found[1].ravel().tolist() == [1, 1, 6, 5]
    (mean,) = computed("AveragePool", {"x": image}, [most], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    np.testing.assert_allclose(mean.ravel(), [4, 5.5, 6, 6])


def test_normalizations_give_their_further_outputs():
    data = np.arange(6, dtype=F32).reshape(2, 3)
    mean = data.mean(1, keepdims=True)
    given = {"x": data, "scale": np.ones(3, F32)}
    found = computed("LayerNormalization", given, [data, mean, mean])
    np.testing.assert_allclose(found[1], mean)
    np.testing.assert_allclose(found[2], 1 / np.sqrt(data.var(1, keepdims=True) + 1e-5), rtol=1e-5)
    row = np.zeros(3, F32)
    given = {"x": data, "s": row + 1, "b": row, "m": row, "v": row + 1}
    found = computed("BatchNormalization", given, [data, row, row], training_mode=1, momentum=0.5)
    np.testing.assert_allclose(found[0], (data - data.mean(0)) / np.sqrt(data.var(0) + 1e-5), rtol=1e-4)
    np.testing.assert_allclose(found[1], data.mean(0) / 2)


def test_what_is_not_supported_is_named():
    x = np.ones((2, 2), F32)
    seeds = helper.make_node("RandomNormalLike", ["x"], ["y"])
    with pytest.raises(WmschedError, match="RandomNormalLike: it draws random numbers"):
        Backend.prepare(model_of([seeds], {"x": x}, {"y": (1, (2, 2))}))
    foreign = helper.make_node("Relu", ["x"], ["y"], domain="mine")
    with pytest.raises(WmschedError, match="Relu: it is an operator of 'mine'"):
        Backend.prepare(model_of([foreign], {"x": x}, {"y": (1, (2, 2))}, domains=["mine"]))
    cast = helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN)
    with pytest.raises(WmschedError, match="Cast: y has elements of the type FLOAT8E4M3FN"):
        Backend.prepare(model_of([cast], {"x": x}, {"y": (17, (2, 2))}, opset=19))
    gather = helper.make_node("Expand", ["x", "n"], ["y"])
    made = helper.make_node("Cast", ["x"], ["n"], to=7)
    flat = np.ones(2, F32)
    model = model_of([made, gather], {"x": flat}, {"y": (1, ("a", "b"))})
    with pytest.raises(WmschedError, match="Expand: the shape it expands to is computed"):
        from wmsched.relax.importers.onnx_import import imported

        imported(model, {})


def test_a_function_of_the_model_is_inlined_and_an_old_operator_set_converted():
    body = [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Exp", ["t"], ["b"])]
    function = helper.make_function("mine", "Relu", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("Relu", ["x"], ["y"], domain="mine")
    x = np.array([0.0, 1.0], F32)
    model = model_of([call], {"x": x}, {"y": (1, (2,))}, functions=[function], domains=["mine"])
    np.testing.assert_allclose(Backend.run_model(model, [x])[0], np.exp(-x), rtol=1e-5)
    image = np.arange(4, dtype=F32).reshape(1, 1, 2, 2)
    wanted = image.repeat(2, 2).repeat(2, 3)
    (found,) = computed("Upsample", {"x": image}, [wanted], opset=8, scales=[1.0, 1.0, 2.0, 2.0])
    np.testing.assert_array_equal(found, wanted)


def test_bodies_of_the_standard_and_loops_of_known_length_are_written_out():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 3, 4)).astype(F32) for _ in range(3))
    (found,) = computed("Attention", {"q": q, "k": k, "v": v}, [q], opset=23)
    score = q @ k.transpose(0, 1, 3, 2) / 2
    power = np.exp(score - score.max(-1, keepdims=True))
    np.testing.assert_allclose(found, power / power.sum(-1, keepdims=True) @ v, rtol=1e-4)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Add", ["s", "s"], ["t"]),
            helper.make_node("Identity", ["t"], ["seen"]),
        ],
        "body",
        [info("i", 7, ()), info("go", 9, ()), info("s", 1, (2,))],
        [info("on", 9, ()), info("t", 1, (2,)), info("seen", 1, (2,))],
    )
    x = np.array([1.0, 3.0], F32)
    loop = helper.make_node("Loop", ["n", "", "x"], ["last", "all"], body=body)
    model = model_of([loop], {"x": x}, {"last": (1, (2,)), "all": (1, (3, 2))}, {"n": np.int64(3)})
    last, every = Backend.run_model(model, [x])
    np.testing.assert_array_equal(last, 8 * x)
    np.testing.assert_array_equal(every, [2 * x, 4 * x, 8 * x])


def test_axes_and_shapes_that_are_inputs_are_bound_when_it_runs():
    x, shape = np.arange(6, dtype=F32), np.array([2, 3])
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    prepared = Backend.prepare(model_of([node], {"x": x, "shape": shape}, {"y": (1, ("a", "b"))}))
    assert prepared.run([x, shape])[0].shape == (2, 3)
    assert prepared.run([x, shape[::-1].copy()])[0].shape == (3, 2)
    with pytest.raises(WmschedError, match="1 inputs are given"):
        prepared.run([x])
