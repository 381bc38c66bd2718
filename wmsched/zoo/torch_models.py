"""Seven benchmark models in plain torch, layer by layer the networks of the zoo's tasks.

Weights are random, since latency depends on shapes alone; nothing is downloaded. Convolutions are
channels-first, PyTorch's default. Attention uses `scaled_dot_product_attention`, PyTorch's fused operator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 1000
TOKENS = 128


def _conv(channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out))


def _conv3d(
    channels: int, out: int, kernel: tuple[int, int, int], stride: tuple[int, int, int]
) -> nn.Sequential:
    pad = (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)
    return nn.Sequential(nn.Conv3d(channels, out, kernel, stride, pad, bias=False), nn.BatchNorm3d(out))


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class Sum(nn.Module):
    """body(x) + x."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x


def resnet50() -> nn.Module:
    """Return ResNet-50, with the stride in the 3x3 convolution."""
    layers: list[nn.Module] = [_conv(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            out = 4 * width
            shortcut = nn.Identity() if block else _conv(channels, out, 1, stride=stride)
            body = nn.Sequential(
                _conv(channels, width, 1),
                nn.ReLU(),
                _conv(width, width, 3, stride=stride),
                nn.ReLU(),
                _conv(width, out, 1),
            )
            layers.append(Residual(body, shortcut))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def mobilenet_v2() -> nn.Module:
    """Return MobileNetV2, width 1.0."""
    layers: list[nn.Module] = [_conv(3, 32, 3, stride=2), nn.ReLU6()]
    channels = 32
    for expansion, out, blocks, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            stride, hidden = first_stride if block == 0 else 1, channels * expansion
            expand = [] if expansion == 1 else [_conv(channels, hidden, 1), nn.ReLU6()]
            depthwise = _conv(hidden, hidden, 3, stride=stride, groups=hidden)
            body = nn.Sequential(*expand, depthwise, nn.ReLU6(), _conv(hidden, out, 1))
            layers.append(Sum(body) if stride == 1 and channels == out else body)
            channels = out
    head = [_conv(channels, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(1280, CLASSES))


def resnet3d18() -> nn.Module:
    """Return ResNet3D-18 for video."""
    layers: list[nn.Module] = [_conv3d(3, 64, (3, 7, 7), (1, 2, 2)), nn.ReLU()]
    channels = 64
    for width, first_stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for block in range(2):
            stride = (first_stride,) * 3 if block == 0 else (1, 1, 1)
            shortcut = nn.Identity() if stride == (1, 1, 1) else _conv3d(channels, width, (1, 1, 1), stride)
            body = nn.Sequential(
                _conv3d(channels, width, (3, 3, 3), stride),
                nn.ReLU(),
                _conv3d(width, width, (3, 3, 3), (1, 1, 1)),
            )
            layers.append(Residual(body, shortcut))
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class Attention(nn.Module):
    """Self-attention over `heads`; [1, tokens, width] in and out.

    `joint`: one projection for q, k and v. `bias`: whether q, k and v have one. `scale`: of the scores;
    None is 1 / sqrt(head size).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool,
        joint: bool = False,
        bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.causal, self.scale = heads, causal, scale
        count, out = (1, 3 * width) if joint else (3, width)
        self.inputs = nn.ModuleList(nn.Linear(width, out, bias=bias) for _ in range(count))
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = [project(x) for project in self.inputs]
        q, k, v = parts if len(parts) == 3 else parts[0].chunk(3, dim=-1)
        shape = (x.shape[0], x.shape[1], self.heads, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return self.output(y.transpose(1, 2).reshape(x.shape))


class BertLayer(nn.Module):
    """Attention and feed-forward with GELU by erf, normalised after each."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(768, 12, causal=False)
        self.inner = nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))
        self.first, self.second = nn.LayerNorm(768), nn.LayerNorm(768)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.attention(x) + x)
        return self.second(self.inner(x) + x)


class GptLayer(nn.Module):
    """Attention with one projection and feed-forward with GELU by tanh, normalised before each."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(768, 12, causal=True, joint=True)
        self.inner = nn.Sequential(nn.Linear(768, 3072), nn.GELU(approximate="tanh"), nn.Linear(3072, 768))
        self.first, self.second = nn.LayerNorm(768), nn.LayerNorm(768)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(self.first(x)) + x
        return self.inner(self.second(x)) + x


def bert_base() -> nn.Module:
    """Return BERT-base's encoder."""
    return nn.Sequential(*(BertLayer() for _ in range(12)))


def gpt2() -> nn.Module:
    """Return GPT-2 (small)."""
    return nn.Sequential(*(GptLayer() for _ in range(12)), nn.LayerNorm(768))


def opt_attention() -> nn.Module:
    """Return OPT-1.3B's self-attention."""
    return Attention(2048, 32, causal=True)


def gpt_neo_attention() -> nn.Module:
    """Return GPT-Neo-2.7B's self-attention at the paper's width of 768: six unscaled heads of 128."""
    return Attention(768, 6, causal=True, bias=False, scale=1.0)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet50": (resnet50, (1, 3, 224, 224)),
    "bert-base": (bert_base, (1, TOKENS, 768)),
    "mobilenetv2": (mobilenet_v2, (1, 3, 224, 224)),
    "gpt2": (gpt2, (1, TOKENS, 768)),
    "resnet3d18": (resnet3d18, (1, 3, 16, 112, 112)),
    "opt-1.3b-attention": (opt_attention, (1, TOKENS, 2048)),
    "gpt-neo-2.7b-attention": (gpt_neo_attention, (1, TOKENS, 768)),
}


def build(name: str) -> tuple[nn.Module, Tensor]:
    """Return the model in evaluation mode, and an input of the paper's shape."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval()
    for part in model.modules():
        if isinstance(part, (nn.Conv2d, nn.Conv3d)):
            # With torch's initial weights each layer shrinks its input: MobileNetV2's output would be 1e-12,
            # too small to compare outputs.
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    return model, torch.randn(shape)
