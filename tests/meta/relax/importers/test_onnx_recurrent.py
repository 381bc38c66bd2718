"""ONNX's LSTM, GRU and RNN compute what PyTorch does, and in their rarer forms what ONNX's equations say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from built import built, written
from torch import nn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from wmsched.base.errors import WmschedError  # noqa: E402
from wmsched.relax.importers.load import load  # noqa: E402
from wmsched.relax.importers.model import tensors  # noqa: E402
from wmsched.tune.latency import difference  # noqa: E402

STEPS, BATCH, SIZE, HIDDEN = 3, 3, 5, 6
DATA = torch.linspace(-1, 1, STEPS * BATCH * SIZE).view(STEPS, BATCH, SIZE)
LENGTHS = np.array([3, 1, 2], np.int32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


class All(nn.Module):
    """Several layers on one input, with their last states."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        found = []
        for layer in self.layers:
            outputs, states = layer(x)
            found += [outputs, *states] if isinstance(states, tuple) else [outputs, states]
        return tuple(found)


def test_layers_of_pytorch(tmp_path):
    torch.manual_seed(0)
    module = All(
        nn.LSTM(SIZE, HIDDEN, num_layers=2, bidirectional=True),
        nn.GRU(SIZE, HIDDEN, batch_first=True),
        nn.RNN(SIZE, HIDDEN, nonlinearity="relu", bias=False),
    )
    model = load(written(tmp_path, module, DATA))
    assert difference(built(tmp_path, model, DATA), module(DATA)) < 1e-6


def test_its_length_has_to_be_a_number(tmp_path):
    path = written(tmp_path, nn.GRU(SIZE, HIDDEN), DATA, dynamic_axes={"x": {0: "steps"}})
    with pytest.raises(WmschedError, match=r"m\.onnx: its input x has the shape steps,3,5.*--shape x="):
        load(path)
    assert load(path, {"x": (2, BATCH, SIZE)}).inputs["x"].shape == (2, BATCH, SIZE)


def test_an_activation_that_onnx_does_not_have(tmp_path):
    constants: dict[str, np.ndarray] = {}
    node = made("RNN", constants, activations=["Gelu"])
    with pytest.raises(WmschedError, match="activation 'Gelu'"):
        load(saved(tmp_path, [node], constants))


# --- forms that PyTorch does not write ----------------------------------------------------------------------


def made(kind, constants, *, direction="forward", layout=0, number=0, inputs=(), **attributes):
    """A node of all outputs, with random weights among the constants; `inputs`: names of those after bias."""
    draws = np.random.default_rng(number)
    count, gates = DIRECTIONS[direction], GATES[kind]
    shapes = {
        "w": (count, gates * HIDDEN, SIZE),
        "r": (count, gates * HIDDEN, HIDDEN),
        "b": (count, 2 * gates * HIDDEN),
        "lengths": (),
        "h0": (BATCH, count, HIDDEN) if layout else (count, BATCH, HIDDEN),
        "c0": (BATCH, count, HIDDEN) if layout else (count, BATCH, HIDDEN),
        "p": (count, 3 * HIDDEN),
    }
    for name in ("w", "r", "b", *inputs):
        if name:
            drawn = draws.uniform(-0.7, 0.7, shapes[name]).astype(np.float32)
            constants[f"{name}{number}"] = LENGTHS if name == "lengths" else drawn
    names = [f"{name}{number}" if name else "" for name in ("w", "r", "b", *inputs)]
    outputs = [f"{name}{number}" for name in (("y", "yh", "yc") if kind == "LSTM" else ("y", "yh"))]
    data = "turned" if layout else "x"
    more = {"layout": layout} if layout else {}
    return helper.make_node(
        kind, [data, *names], outputs, hidden_size=HIDDEN, direction=direction, **more, **attributes
    )


def saved(folder, nodes, constants):
    """A model's file of the nodes, which returns all that they do."""
    turn = helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2])
    graph = helper.make_graph(
        [turn, *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, DATA.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for n in nodes for name in n.output],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    return str(folder / "m.onnx")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "LeakyRelu": lambda x, a: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a: np.where(x > a, x, 0),
    "Elu": lambda x, a: np.where(x < 0, a * (np.exp(x) - 1), x),
    "Affine": lambda x, a, b: a * x + b,
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
}


def expected(node, constants, functions):
    """What ONNX's equations give, sequence by sequence; `functions`: those of one direction."""
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    names = dict(zip(("x", "w", "r", "b", "lengths", "h0", "c0", "p"), node.input))
    given = {key: constants.get(name) for key, name in names.items()}
    layout, direction = attributes.get("layout", 0), attributes["direction"].decode()
    count, clip = DIRECTIONS[direction], attributes.get("clip", np.inf)

    def bounded(function, x):
        return function(np.clip(x, -clip, clip))

    def start(key, place, row):
        if given.get(key) is None:
            return np.zeros(HIDDEN, np.float32)
        return given[key][row, place] if layout else given[key][place, row]

    outputs = np.zeros((STEPS, count, BATCH, HIDDEN), np.float32)
    lasts = np.zeros((2, count, BATCH, HIDDEN), np.float32)
    for place in range(count):
        w, r = given["w"][place], given["r"][place]
        wb, rb = np.split(given["b"][place], 2)
        peep = np.zeros((3, HIDDEN)) if given.get("p") is None else given["p"][place].reshape(3, HIDDEN)
        for row in range(BATCH):
            h, c = start("h0", place, row), start("c0", place, row)
            steps = range(STEPS if given.get("lengths") is None else int(given["lengths"][row]))
            backwards = direction == "reverse" or place == 1
            for step in reversed(steps) if backwards else steps:
                x = w @ DATA[step, row].numpy() + wb
                f, g, *more = functions
                if node.op_type == "RNN":
                    h = bounded(f, x + r @ h + rb)
                elif node.op_type == "GRU":
                    xs, rs, bs = np.split(x, 3), np.split(r, 3), np.split(rb, 3)
                    z, reset = (bounded(f, xs[k] + rs[k] @ h + bs[k]) for k in (0, 1))
                    late = attributes.get("linear_before_reset", 0)
                    old = reset * (rs[2] @ h + bs[2]) if late else rs[2] @ (reset * h) + bs[2]
                    h = (1 - z) * bounded(g, xs[2] + old) + z * h
                else:
                    i, o, forget, cell = np.split(x + r @ h + rb, 4)
                    i = bounded(f, i + peep[0] * c)
                    coupled = attributes.get("input_forget", 0)
                    forget = 1 - i if coupled else bounded(f, forget + peep[2] * c)
                    c = forget * c + i * bounded(g, cell)
                    h = bounded(f, o + peep[1] * c) * bounded(more[0], c)
                outputs[step, place, row] = h
            lasts[:, place, row] = h, c
    found = [outputs, *lasts[: 2 if node.op_type == "LSTM" else 1]]
    if layout:
        found = [outputs.transpose(2, 0, 1, 3), *(last.transpose(1, 0, 2) for last in found[1:])]
    return [torch.from_numpy(np.ascontiguousarray(value)) for value in found]


def check(folder, nodes, constants, wanted):
    found = list(tensors(built(folder, load(saved(folder, nodes, constants)), DATA)))
    for one, other in zip(found, wanted, strict=True):
        assert difference(one, other) < 1e-6


def test_forms_that_pytorch_does_not_write(tmp_path):
    constants: dict[str, np.ndarray] = {}
    tanh = np.tanh
    hard = {
        "activations": ["HardSigmoid", "Tanh", "Tanh"],
        "activation_alpha": [0.2],
        "activation_beta": [0.5],
    }
    given = {"direction": "bidirectional", "inputs": ("lengths", "h0", "c0", "p"), "clip": 0.3}
    coupled = {"layout": 1, "input_forget": 1, "inputs": ("", "h0", "c0")}
    forms = [
        ("GRU", (sigmoid, tanh), {"direction": "reverse", "inputs": ("lengths", "h0")}),
        ("GRU", (sigmoid, tanh), {"direction": "bidirectional", "linear_before_reset": 1, "layout": 1}),
        ("LSTM", (sigmoid, tanh, tanh), given),
        ("LSTM", (lambda x: np.clip(0.2 * x + 0.5, 0, 1), tanh, tanh), hard | coupled),
    ]
    nodes, wanted = [], []
    for number, (kind, functions, more) in enumerate(forms):
        nodes.append(made(kind, constants, number=number, **more))
        wanted += expected(nodes[-1], constants, [*functions, None])
    check(tmp_path, nodes, constants, wanted)


@pytest.mark.slow
def test_every_activation(tmp_path):
    constants: dict[str, np.ndarray] = {}
    numbers = {"activation_alpha": [0.3], "activation_beta": [0.4]}
    nodes, wanted = [], []
    for number, (name, function) in enumerate(ACTIVATIONS.items()):
        takes = function.__code__.co_argcount - 1 if not isinstance(function, np.ufunc) else 0
        more = dict(list(numbers.items())[:takes])
        values = [value[0] for value in more.values()]
        nodes.append(made("RNN", constants, number=number, activations=[name], **more))
        wanted += expected(nodes[-1], constants, [lambda x, f=function, v=values: f(x, *v), None])
    check(tmp_path, nodes, constants, wanted)
