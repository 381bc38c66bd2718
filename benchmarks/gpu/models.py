"""Whole models of `benchmarks.gpu.minutes`, in plain PyTorch with random weights: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from wmsched.zoo.torch_models import Sum, build

TOKENS, WIDTH, HEADS = 128, 768, 12


class Step(nn.Module):
    """A layer of GPT-2 that decodes one token, with the keys and values of those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.inputs(self.first(x)).reshape(1, 1, 3, HEADS, WIDTH // HEADS)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = functional.scaled_dot_product_attention(q, keys, values)
        x = self.output(y.transpose(1, 2).reshape(x.shape)) + x
        return self.inner(self.second(x)) + x, keys, values


class Decoder(nn.Module):
    """GPT-2's step: a token's state, and keys and values of all layers, [layers, heads, tokens, 64] each."""

    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(Step() for _ in range(layers)), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found: list[tuple[Tensor, Tensor]] = []
        for layer, k, v in zip(self.layers, keys.split(1), values.split(1), strict=True):
            x, k, v = layer(x, k, v)
            found.append((k, v))
        return self.last(x), torch.cat([k for k, _ in found]), torch.cat([v for _, v in found])


class Attention(nn.Module):
    """Self-attention, of [1, tokens, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inputs = heads, nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], x.shape[1], self.heads, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.output(y.transpose(1, 2).reshape(x.shape))


class UNetBlock(nn.Module):
    """A block of a diffusion U-Net: a residual pair of convolutions, and attention over all places."""

    def __init__(self, channels: int = 320, heads: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, 1, 1),
            nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, 1, 1),
        )  # fmt: skip
        self.norm, self.attention = nn.LayerNorm(channels), Attention(channels, heads)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x) + x
        tokens = x.flatten(2).transpose(1, 2)
        tokens = self.attention(self.norm(tokens)) + tokens
        return tokens.transpose(1, 2).reshape(x.shape)


class Encoder(nn.Module):
    """Whisper's encoder (base): two convolutions along time, and layers of attention over 1500 steps."""

    def __init__(self, mels: int = 80, width: int = 512, heads: int = 8, layers: int = 6) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(mels, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        parts: list[nn.Module] = []
        for _ in range(layers):
            inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
            parts += [Sum(attention), Sum(nn.Sequential(nn.LayerNorm(width), inner))]
        self.layers = nn.Sequential(*parts, nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(x))))
        return self.layers(x.transpose(1, 2))


Made = tuple[nn.Module, tuple[Tensor, ...]]


def _of_zoo(name: str, parts: int) -> Callable[[bool], Made]:
    """Return what makes a model of the zoo, or its first parts."""

    def make(shallow: bool) -> Made:
        module, data = build(name)
        return (nn.Sequential(*list(module.children())[:parts]) if shallow else module), (data,)

    return make


def _step(shallow: bool) -> Made:
    layers = 1 if shallow else 12
    cache = (layers, HEADS, TOKENS, WIDTH // HEADS)
    return Decoder(layers), (torch.randn(1, 1, WIDTH), torch.randn(cache), torch.randn(cache))


def _block(shallow: bool) -> Made:
    size = 16 if shallow else 64
    return UNetBlock(), (torch.randn(1, 320, size, size),)


def _encoder(shallow: bool) -> Made:
    return Encoder(layers=1 if shallow else 6), (torch.randn(1, 80, 3000),)


#: By name: ResNet-50, BERT, GPT-2's prefill and step, a block of a diffusion U-Net, and Whisper's encoder.
#: Each is made whole, or for a rehearsal shallow: with its first layers alone.
MODELS: dict[str, Callable[[bool], Made]] = {
    "resnet50": _of_zoo("resnet50", parts=4),
    "bert-base": _of_zoo("bert-base", parts=1),
    "gpt2": _of_zoo("gpt2", parts=1),
    "gpt2-step": _step,
    "unet-block": _block,
    "whisper-encoder": _encoder,
}


def made(name: str, *, shallow: bool = False) -> Made:
    """Return a model in evaluation mode, and its inputs; of a shallow one the first layers."""
    torch.manual_seed(0)
    module, inputs = MODELS[name](shallow)
    return module.eval(), inputs
