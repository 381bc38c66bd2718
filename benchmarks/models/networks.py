"""The seven benchmark models in Relay (paper, table 1), with made-up weights.

Only the shapes and the operators matter to tuning, so each model is written out here rather than imported
from a model library: no download, and the same tasks for everyone. Weights are small random numbers: zeros
and ones would be folded away by Relay and the bias additions with them. Layers with equal shapes share
their weight, which keeps the twelve-layer models small; the roles inside a layer do not, or Relay would
merge them.

Convolutions are channels-last (NHWC, NDHWC), the layout AutoScheduler wants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost  # noqa: F401  # before tvm: the other order ends in "free(): invalid pointer"
from tvm import IRModule, relay

Expr = Any  # relay.Expr: the TVM wheel ships no type stubs

SEED = 0
CLASSES = 1000


@dataclass(frozen=True, slots=True)
class Network:
    """One model: its name, its input shape (batch 1, float32), and how many subgraphs the paper counts."""

    name: str
    title: str
    shape: tuple[int, ...]
    paper_count: int
    build: Callable[[Weights, Expr], Expr]


class Weights:
    """Named parameters, made when first asked for."""

    def __init__(self) -> None:
        self.params: dict[str, np.ndarray] = {}
        self._vars: dict[str, Expr] = {}
        self._rng = np.random.default_rng(SEED)

    def __call__(self, role: str, *shape: int) -> Expr:
        """The variable for `role` with `shape`; the same one whenever both are the same."""
        name = f"{role}_{'x'.join(map(str, shape))}"
        if name not in self._vars:
            self._vars[name] = relay.var(name, shape=shape, dtype="float32")
            # uniform in [0.5, 1.5): positive, so that it serves as a variance too, and nowhere foldable
            self.params[name] = self._rng.random(shape, dtype=np.float32) + np.float32(0.5)
        return self._vars[name]


def _shape(x: Expr) -> tuple[int, ...]:
    return tuple(int(n) for n in relay.transform.InferTypeLocal(x).shape)


# ---------------------------------------------------------------------------------------------- convolutions


def _batch_norm(w: Weights, x: Expr, channels: int, role: str) -> Expr:
    terms = [w(f"{role}_{part}", channels) for part in ("gamma", "beta", "mean", "var")]
    axis = len(_shape(x)) - 1
    return relay.nn.batch_norm(x, *terms, axis=axis)[0]


def _conv2d(
    w: Weights, x: Expr, out: int, kernel: int, *, stride: int = 1, groups: int = 1, role: str = "conv"
) -> Expr:
    """Convolution and batch normalisation; padding keeps the extent, divided by the stride."""
    channels = _shape(x)[-1]
    pad = kernel // 2
    depthwise = groups > 1
    weight = w(role, kernel, kernel, *((channels, 1) if depthwise else (channels, out)))
    y = relay.nn.conv2d(
        x,
        weight,
        strides=(stride, stride),
        padding=(pad, pad, pad, pad),
        channels=out,
        groups=groups,
        kernel_size=(kernel, kernel),
        data_layout="NHWC",
        kernel_layout="HWOI" if depthwise else "HWIO",
    )
    return _batch_norm(w, y, out, role)


def _conv3d(
    w: Weights,
    x: Expr,
    out: int,
    kernel: tuple[int, int, int],
    *,
    stride: tuple[int, int, int] = (1, 1, 1),
    role: str = "conv",
) -> Expr:
    pad = tuple(k // 2 for k in kernel)
    y = relay.nn.conv3d(
        x,
        w(role, *kernel, _shape(x)[-1], out),
        strides=stride,
        padding=pad + pad,
        channels=out,
        kernel_size=kernel,
        data_layout="NDHWC",
        kernel_layout="DHWIO",
    )
    return _batch_norm(w, y, out, role)


def _classifier(w: Weights, pooled: Expr) -> Expr:
    x = relay.nn.batch_flatten(pooled)
    return relay.nn.bias_add(relay.nn.dense(x, w("fc", CLASSES, _shape(x)[-1])), w("fc_bias", CLASSES))


def resnet50(w: Weights, data: Expr) -> Expr:
    """ResNet-50, the stride in the 3x3 convolution (torchvision's)."""
    x = relay.transpose(data, (0, 2, 3, 1))
    x = relay.nn.relu(_conv2d(w, x, 64, 7, stride=2, role="stem"))
    x = relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1, 1, 1), layout="NHWC")
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            shortcut = x if block else _conv2d(w, x, 4 * width, 1, stride=stride, role="shortcut")
            y = relay.nn.relu(_conv2d(w, x, width, 1, role="reduce"))
            y = relay.nn.relu(_conv2d(w, y, width, 3, stride=stride))
            x = relay.nn.relu(_conv2d(w, y, 4 * width, 1, role="expand") + shortcut)
    return _classifier(w, relay.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"))


def mobilenet_v2(w: Weights, data: Expr) -> Expr:
    """MobileNetV2, width 1.0."""

    def relu6(y: Expr) -> Expr:
        return relay.clip(y, 0.0, 6.0)

    x = relay.transpose(data, (0, 2, 3, 1))
    x = relu6(_conv2d(w, x, 32, 3, stride=2, role="stem"))
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, out, blocks, first_stride in settings:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            channels = _shape(x)[-1]
            hidden = channels * expansion
            y = x if expansion == 1 else relu6(_conv2d(w, x, hidden, 1, role="expand"))
            y = relu6(_conv2d(w, y, hidden, 3, stride=stride, groups=hidden, role="depthwise"))
            y = _conv2d(w, y, out, 1, role="project")
            x = x + y if stride == 1 and channels == out else y
    x = relu6(_conv2d(w, x, 1280, 1, role="head"))
    return _classifier(w, relay.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"))


def resnet3d18(w: Weights, data: Expr) -> Expr:
    """ResNet3D-18 for video (torchvision's r3d_18, 400 classes there; the class count follows the others)."""
    x = relay.transpose(data, (0, 2, 3, 4, 1))
    x = relay.nn.relu(_conv3d(w, x, 64, (3, 7, 7), stride=(1, 2, 2), role="stem"))
    for width, first_stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for block in range(2):
            stride = (first_stride,) * 3 if block == 0 else (1, 1, 1)
            shortcut = x
            if stride != (1, 1, 1):
                shortcut = _conv3d(w, x, width, (1, 1, 1), stride=stride, role="shortcut")
            y = relay.nn.relu(_conv3d(w, x, width, (3, 3, 3), stride=stride))
            x = relay.nn.relu(_conv3d(w, y, width, (3, 3, 3), role="second") + shortcut)
    return _classifier(w, relay.nn.adaptive_avg_pool3d(x, (1, 1, 1), layout="NDHWC"))


# ---------------------------------------------------------------------------------------------- transformers


def _dense(w: Weights, x: Expr, out: int, role: str, *, bias: bool = True) -> Expr:
    """x [tokens, in] times W^T, with its bias."""
    y = relay.nn.dense(x, w(role, out, _shape(x)[-1]))
    return relay.nn.bias_add(y, w(f"{role}_bias", out)) if bias else y


def _layer_norm(w: Weights, x: Expr, role: str) -> Expr:
    hidden = _shape(x)[-1]
    return relay.nn.layer_norm(x, w(f"{role}_gamma", hidden), w(f"{role}_beta", hidden))


def _heads(x: Expr, heads: int, *, transposed: bool = False) -> Expr:
    """[tokens, hidden] to [heads, tokens, hidden / heads], or its last two axes exchanged."""
    tokens, hidden = _shape(x)
    x = relay.reshape(x, (tokens, heads, hidden // heads))
    return relay.transpose(x, (1, 2, 0) if transposed else (1, 0, 2))


def _attention(q: Expr, k: Expr, v: Expr, heads: int, finish: Callable[[Expr], Expr]) -> Expr:
    """Softmax(finish(q k^T)) v over `heads`; [tokens, hidden] in and out. `finish` scales and masks."""
    scores = finish(relay.nn.batch_matmul(_heads(q, heads), _heads(k, heads)))
    mixed = relay.nn.batch_matmul(relay.nn.softmax(scores), _heads(v, heads, transposed=True))
    return relay.reshape(relay.transpose(mixed, (1, 0, 2)), _shape(q))


def _const(value: float) -> Expr:
    return relay.const(np.float32(value))


def _mask(tokens: int) -> Expr:
    """The causal mask to be added to scores [heads, tokens, tokens].

    GPT-2 and GPT-Neo are published with a `where` instead, which computes the same; but AutoScheduler finds
    no sketch for a batched product followed by `where` (FollowTiling, "12 vs. 3"): it cannot be tuned.
    """
    causal = np.tril(np.ones((1, tokens, tokens), dtype=bool))
    return relay.const(np.where(causal, 0.0, -1e9).astype(np.float32))


def bert_base(w: Weights, data: Expr) -> Expr:
    """BERT-base's encoder: 12 layers, 12 heads, GELU by erf; normalisation after each half."""
    x = relay.reshape(data, (-1, 768))
    for _ in range(12):
        q, k, v = (_dense(w, x, 768, role) for role in "qkv")
        y = _attention(q, k, v, 12, lambda s: s / _const(8.0))
        x = _layer_norm(w, _dense(w, y, 768, "out") + x, "ln1")
        y = _dense(w, x, 3072, "ffn1")
        y = y * _const(0.5) * (relay.erf(y * _const(0.5**0.5)) + _const(1.0))
        x = _layer_norm(w, _dense(w, y, 768, "ffn2") + x, "ln2")
    return x


def gpt2(w: Weights, data: Expr) -> Expr:
    """GPT-2 (small): 12 layers, 12 heads, one projection for q, k, v, GELU by tanh; normalisation first."""
    x = relay.reshape(data, (-1, 768))
    mask = _mask(_shape(x)[0])
    for _ in range(12):
        y = _dense(w, _layer_norm(w, x, "ln1"), 3 * 768, "qkv")
        q, k, v = relay.split(y, 3, axis=1)
        y = _attention(q, k, v, 12, lambda s: s / _const(8.0) + mask)
        x = _dense(w, y, 768, "out") + x
        y = _dense(w, _layer_norm(w, x, "ln2"), 3072, "ffn1")
        inner = _const((2.0 / np.pi) ** 0.5) * (y + _const(0.044715) * y * y * y)
        y = _const(0.5) * y * (_const(1.0) + relay.tanh(inner))
        x = _dense(w, y, 768, "ffn2") + x
    return _layer_norm(w, x, "ln_final")


def opt_attention(w: Weights, data: Expr) -> Expr:
    """OPT-1.3B's self-attention: 32 heads of 64, the query scaled, an additive causal mask."""
    x = relay.reshape(data, (-1, 2048))
    mask = _mask(_shape(x)[0])
    q = _dense(w, x, 2048, "q") * _const(64**-0.5)
    k, v = _dense(w, x, 2048, "k"), _dense(w, x, 2048, "v")
    y = _attention(q, k, v, 32, lambda s: s + mask)
    return _dense(w, y, 2048, "out")


def gpt_neo_attention(w: Weights, data: Expr) -> Expr:
    """GPT-Neo-2.7B's self-attention at the paper's width of 768: heads of 128, unscaled, q, k, v unbiased.

    The released 2.7B model is 2560 wide with 20 heads of 128; the paper's input shape is [1, 128, 768]. The
    head size is kept, so there are 6 heads.
    """
    x = relay.reshape(data, (-1, 768))
    mask = _mask(_shape(x)[0])
    q, k, v = (_dense(w, x, 768, role, bias=False) for role in "qkv")
    y = _attention(q, k, v, 6, lambda s: s + mask)
    return _dense(w, y, 768, "out")


NETWORKS = (
    Network("resnet50", "ResNet-50", (1, 3, 224, 224), 27, resnet50),
    Network("bert-base", "BERT-base", (1, 128, 768), 8, bert_base),
    Network("mobilenetv2", "MobileNetV2", (1, 3, 224, 224), 32, mobilenet_v2),
    Network("gpt2", "GPT-2", (1, 128, 768), 9, gpt2),
    Network("resnet3d18", "ResNet3D-18", (1, 3, 16, 112, 112), 16, resnet3d18),
    Network("opt-1.3b-attention", "OPT-1.3B self-attention", (1, 128, 2048), 6, opt_attention),
    Network("gpt-neo-2.7b-attention", "GPT-Neo-2.7B self-attention", (1, 128, 768), 5, gpt_neo_attention),
)


def build(network: Network) -> tuple[IRModule, dict[str, np.ndarray]]:
    """The network as a Relay module and its parameters."""
    weights = Weights()
    data = relay.var("data", shape=network.shape, dtype="float32")
    body = network.build(weights, data)
    module = IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    return relay.transform.InferType()(module), weights.params
