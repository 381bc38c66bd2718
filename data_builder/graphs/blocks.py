"""Units and blocks of real architectures, as their papers have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "Branches",
    "Dense",
    "Encoder",
    "Gate",
    "Mixer",
    "Next",
    "Shuffled",
    "Split",
    "UNet",
    "basic",
    "bottleneck",
    "enlarging",
    "fire",
    "inception",
    "inverted",
    "separable",
    "unit",
    "vgg",
]


def unit(
    inputs: int,
    outputs: int,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution with batch normalisation and an activation."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([act()] if act else []))


class Residual(nn.Module):
    """A body, whose result is added to what it reads where the shapes allow it."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, end: nn.Module | None = None):
        super().__init__()
        self.body, self.shortcut, self.end = body, shortcut or nn.Identity(), end or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.body(x) + self.shortcut(x))


class Branches(nn.Module):
    """Branches of one input, whose results are joined."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int, middle: int, end: Callable[[], nn.Module] = nn.Sigmoid) -> None:
        super().__init__()
        self.ends = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, middle, 1), nn.ReLU(),
            nn.Conv2d(middle, channels, 1), end(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * self.ends(x)


def basic(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    shortcut = None if stride == 1 and inputs == outputs else unit(inputs, outputs, 1, stride, act=None)
    body = nn.Sequential(unit(inputs, outputs, 3, stride), unit(outputs, outputs, act=None))
    return Residual(body, shortcut, nn.ReLU())


def bottleneck(inputs: int, middle: int, outputs: int, stride: int = 1, groups: int = 1) -> nn.Module:
    shortcut = None if stride == 1 and inputs == outputs else unit(inputs, outputs, 1, stride, act=None)
    body = nn.Sequential(
        unit(inputs, middle, 1),
        unit(middle, middle, 3, stride, groups),
        unit(middle, outputs, 1, act=None),
    )
    return Residual(body, shortcut, nn.ReLU())


def inverted(
    inputs: int, wide: int, outputs: int, size: int = 3, stride: int = 1, gate: int = 0, act: Any = nn.ReLU6
) -> nn.Module:
    body = nn.Sequential(
        unit(inputs, wide, 1, act=act), unit(wide, wide, size, stride, wide, act),
        *([Gate(wide, gate)] if gate else []), unit(wide, outputs, 1, act=None),
    )  # fmt: skip
    return Residual(body) if stride == 1 and inputs == outputs else body


class Shuffled(nn.Module):
    """A unit of ShuffleNetV2 (arXiv 1807.11164)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.worked = nn.Sequential(
            unit(half, half, 1), unit(half, half, 3, 1, half, None), unit(half, half, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        joined = torch.cat([left, self.worked(right)], 1)
        batch, channels, height, width = joined.shape
        turned = joined.reshape(batch, 2, channels // 2, height, width).transpose(1, 2)
        return turned.reshape(batch, channels, height, width)


class Dense(nn.Module):
    """A block whose layers read all earlier ones (arXiv 1608.06993)."""

    def __init__(self, inputs: int, layers: int, growth: int) -> None:
        super().__init__()
        sizes = [inputs + growth * number for number in range(layers)]
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(size), nn.ReLU(), unit(size, 4 * growth, 1),
                nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
            )
            for size in sizes
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class UShape(nn.Module):
    """An image at sizes that halve, each joined with what the next one is enlarged to.

    A subclass makes the blocks.
    """

    down: nn.ModuleList
    enlarge: nn.ModuleList
    up: nn.ModuleList
    last: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        kept.pop()
        for enlarge, block in zip(self.enlarge, self.up):
            x = block(torch.cat([kept.pop(), enlarge(x)], 1))
        return self.last(x)


class UNet(UShape):
    """A U-Net with transposed convolutions (arXiv 1505.04597)."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(unit(before, width), unit(width, width)) for before, width in pairwise((3, *widths))
        )
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, 2) for wide, narrow in pairwise(widths[::-1])
        )
        self.up = nn.ModuleList(
            nn.Sequential(unit(2 * width, width), unit(width, width)) for width in widths[-2::-1]
        )
        self.last = nn.Conv2d(widths[0], 2, 1)


class Split(nn.Module):
    """A cross-stage block of a detector: half of the channels go through pairs (C2f)."""

    def __init__(self, channels: int, repeats: int) -> None:
        super().__init__()
        half = channels // 2
        self.first = unit(channels, channels, 1, act=nn.SiLU)
        self.pairs = nn.ModuleList(
            nn.Sequential(unit(half, half, act=nn.SiLU), unit(half, half, act=nn.SiLU))
            for _ in range(repeats)
        )
        self.last = unit((2 + repeats) * half, channels, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for pair in self.pairs:
            parts.append(parts[-1] + pair(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Next(nn.Module):
    """A block of ConvNeXt (arXiv 2201.03545)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(functional.gelu(self.wide(y))).permute(0, 3, 1, 2)


class Encoder(nn.Module):
    """A layer of a transformer, norm first."""

    def __init__(self, width: int, heads: int, wide: int, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.heads, self.act = nn.LayerNorm(width), nn.LayerNorm(width), heads, act
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, wide), nn.Linear(wide, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, 2)
        )
        weights = torch.softmax(q @ k.transpose(2, 3) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(self.act(self.wide(self.second(x))))


class Mixer(nn.Module):
    """A layer of MLP-Mixer (arXiv 2105.01601)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(nn.Linear(length, 2 * length), nn.GELU(), nn.Linear(2 * length, length))
        self.across = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.along(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.second(x))


def inception(inputs: int, a: int, b: int, c: int, d: int) -> nn.Module:
    return Branches(
        unit(inputs, a, 1), nn.Sequential(unit(inputs, b // 2, 1), unit(b // 2, b)),
        nn.Sequential(unit(inputs, c // 2, 1), unit(c // 2, c, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), unit(inputs, d, 1)),
    )  # fmt: skip


def fire(inputs: int, squeezed: int, outputs: int) -> nn.Module:
    ends = (nn.Sequential(nn.Conv2d(squeezed, outputs, k, 1, k // 2), nn.ReLU()) for k in (1, 3))
    return nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(), Branches(*ends))


def enlarging(width: int, blocks: int, factor: int) -> nn.Module:
    """Return a network that enlarges images (EDSR, arXiv 1707.02921)."""
    plain = (
        Residual(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)))
        for _ in range(blocks)
    )
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1),
        *plain,
        nn.Conv2d(width, 3 * factor**2, 3, 1, 1),
        nn.PixelShuffle(factor),
    )


def vgg(*widths: int) -> nn.Module:
    parts = [unit(before, width) for before, width in pairwise(widths)]
    return nn.Sequential(*parts[:2], nn.MaxPool2d(2), *parts[2:])


def separable(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(unit(inputs, inputs, 3, stride, inputs), unit(inputs, outputs, 1))
