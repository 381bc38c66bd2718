"""Small decoders with a cache, in PyTorch and ONNX, with the same weights, and tuned folders of them.

One layer of attention of one head. `logits_of` computes the whole sequence anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from built import TARGET
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import wmsched
from wmsched.base.cores import unbound
from wmsched.relax.passes import pipeline
from wmsched.relax.state.in_place import in_place
from wmsched.relax.state.one_row import one_row
from wmsched.tune.state import write_starts
from wmsched.tune.tune_model import describe_run

WORDS, WIDTH, ROWS = 16, 8, 12  # of the vocabulary, of a token, of the cache
HIDDEN = -1e9  # added to the score of what is not seen
_draw = np.random.default_rng(0)
TABLE = _draw.standard_normal((WORDS, WIDTH)).astype(np.float32)
QUERY, KEY, VALUE = _draw.standard_normal((3, WIDTH, WIDTH)).astype(np.float32)
OUT = _draw.standard_normal((WIDTH, WORDS)).astype(np.float32)


def logits_of(tokens: list[int]) -> np.ndarray:
    """What follows the last token."""
    x = TABLE[tokens]
    scores = x[-1] @ QUERY @ (x @ KEY).T / WIDTH**0.5
    weights = np.exp(scores - scores.max())
    seen = weights / weights.sum() @ (x @ VALUE)
    return (x[-1] + seen) @ OUT


class Static(nn.Module):
    """Decoder with its cache in buffers, written where it lies; a constant of theirs is a buffer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 1, ROWS, WIDTH), persistent=False)
        self.register_buffer("values", torch.zeros(1, 1, ROWS, WIDTH), persistent=False)
        self.out = nn.Parameter(torch.tensor(OUT))
        self.register_buffer("steps", torch.tensor([5]))
        self.register_buffer("rows", torch.arange(ROWS), persistent=False)

    def forward(self, ids, place):
        x = torch.tensor(TABLE)[ids[:, 0]][:, None, None]
        self.keys.index_copy_(2, place, x @ torch.tensor(KEY))
        self.values.index_copy_(2, place, x @ torch.tensor(VALUE))
        self.steps.add_(1)
        scores = x @ torch.tensor(QUERY) @ self.keys.transpose(2, 3) / WIDTH**0.5
        scores = scores + torch.where(self.rows <= place, 0.0, HIDDEN)
        seen = torch.softmax(scores, -1) @ self.values
        return (x + seen) @ self.out, self.steps * 1


def exported(path: Path) -> str:
    """Write `Static` as a program of PyTorch's."""
    given = torch.tensor([[1]]), torch.tensor([3])
    torch.export.save(torch.export.export(Static().eval(), given), path)
    return str(path)


def _model(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> str:
    weights = {"table": TABLE, "query": QUERY, "key": KEY, "value": VALUE, "out": OUT, **constants}
    weights["scale"] = np.float32(WIDTH**-0.5)
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return str(path)


def _attention(mask: list[Any]) -> list[Any]:
    """Nodes from x and the present keys and values to the logits; `mask` makes the bias of the scores."""
    node = helper.make_node
    return [
        *mask,
        node("MatMul", ["x", "query"], ["q"]),
        node("Transpose", ["present.0.key"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["q", "turned"], ["raw"]),
        node("Mul", ["raw", "scale"], ["scaled"]),
        node("Add", ["scaled", "bias"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "present.0.value"], ["seen"]),
        node("Add", ["x", "seen"], ["y"]),
        node("MatMul", ["y", "out"], ["logits"]),
    ]


def _tensor(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def static_onnx(path: Path) -> str:
    """Write a decoder that scatters a token's rows into its past, at a position."""
    node = helper.make_node
    mask = [
        node("LessOrEqual", ["rows", "position"], ["sees"]),
        node("Where", ["sees", "nothing", "hidden"], ["bias"]),
    ]
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("MatMul", ["x", "key"], ["k"]),
        node("MatMul", ["x", "value"], ["v"]),
        node("Concat", ["first", "position"], ["at"], axis=0),
        node("Reshape", ["at", "pairs"], ["where"]),
        node("ScatterND", ["past_key_values.0.key", "where", "k"], ["present.0.key"]),
        node("ScatterND", ["past_key_values.0.value", "where", "v"], ["present.0.value"]),
        *_attention(mask),
    ]
    cache = [1, ROWS, WIDTH]
    return _model(
        path,
        nodes,
        [
            _tensor("ids", [1, 1], TensorProto.INT64),
            _tensor("position", [1], TensorProto.INT64),
            *(_tensor(f"past_key_values.0.{part}", cache) for part in ("key", "value")),
        ],
        [_tensor("logits", [1, 1, WORDS]), *(_tensor(f"present.0.{one}", cache) for one in ("key", "value"))],
        rows=np.arange(ROWS),
        nothing=np.float32(0),
        hidden=np.float32(HIDDEN),
        first=np.zeros(1, np.int64),
        pairs=np.array([1, 1, 2]),
    )


def growing_onnx(path: Path) -> str:
    """Write a decoder that appends a token's rows to its past, under a mask."""
    node = helper.make_node
    mask = [
        node("Cast", ["attention_mask"], ["flags"], to=TensorProto.FLOAT),
        node("Sub", ["one", "flags"], ["unseen"]),
        node("Mul", ["unseen", "hidden"], ["bias"]),
    ]
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("MatMul", ["x", "key"], ["k"]),
        node("MatMul", ["x", "value"], ["v"]),
        node("Concat", ["past_key_values.0.key", "k"], ["present.0.key"], axis=1),
        node("Concat", ["past_key_values.0.value", "v"], ["present.0.value"], axis=1),
        *_attention(mask),
    ]
    return _model(
        path,
        nodes,
        [
            _tensor("ids", [1, 1], TensorProto.INT64),
            _tensor("attention_mask", [1, "total"], TensorProto.INT64),
            *(_tensor(f"past_key_values.0.{part}", [1, "past", WIDTH]) for part in ("key", "value")),
        ],
        [
            _tensor("logits", [1, 1, WORDS]),
            *(_tensor(f"present.0.{part}", [1, "total", WIDTH]) for part in ("key", "value")),
        ],
        one=np.float32(1),
        hidden=np.float32(HIDDEN),
    )


def kept(out: Path, model: Any, *, writes: bool = True) -> Any:
    """A tuned model without schedules, whose states are written in place or, where not, copied."""
    out.mkdir()
    module = in_place(one_row(model.module, TARGET), TARGET) if writes else model.module
    with unbound():
        prepared = pipeline.prepare(module, TARGET)
    pipeline.compile_module(prepared, TARGET).export_library(str(out / "model.so"))
    write_starts(out, model.states)
    (out / "model.json").write_text(json.dumps(describe_run(model, TARGET)), encoding="utf-8")
    report = {"threads": 1, "library": {"file": "model.so"}}
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    return wmsched.load(out)
