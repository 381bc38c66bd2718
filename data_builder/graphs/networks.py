"""Small graphs of many architectures, with random weights: blocks of real networks, and generated ones.

A name is FAMILY-NUMBER; graphs of one family are alike and must not be on both sides of a split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FAMILIES", "family_of", "network", "names"]

GENERATED = "generated"
BATCHES = 3  # that the statistics of batch normalisation are of


def _unit(
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


def _basic(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    shortcut = None if stride == 1 and inputs == outputs else _unit(inputs, outputs, 1, stride, act=None)
    body = nn.Sequential(_unit(inputs, outputs, 3, stride), _unit(outputs, outputs, act=None))
    return Residual(body, shortcut, nn.ReLU())


def _bottleneck(inputs: int, middle: int, outputs: int, stride: int = 1, groups: int = 1) -> nn.Module:
    shortcut = None if stride == 1 and inputs == outputs else _unit(inputs, outputs, 1, stride, act=None)
    body = nn.Sequential(
        _unit(inputs, middle, 1), _unit(middle, middle, 3, stride, groups), _unit(middle, outputs, 1, act=None)
    )
    return Residual(body, shortcut, nn.ReLU())


def _inverted(
    inputs: int, wide: int, outputs: int, size: int = 3, stride: int = 1, gate: int = 0, act: Any = nn.ReLU6
) -> nn.Module:
    body = nn.Sequential(
        _unit(inputs, wide, 1, act=act), _unit(wide, wide, size, stride, wide, act),
        *([Gate(wide, gate)] if gate else []), _unit(wide, outputs, 1, act=None),
    )  # fmt: skip
    return Residual(body) if stride == 1 and inputs == outputs else body


class Shuffled(nn.Module):
    """A unit of ShuffleNetV2 (arXiv 1807.11164)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.worked = nn.Sequential(
            _unit(half, half, 1), _unit(half, half, 3, 1, half, None), _unit(half, half, 1)
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
                nn.BatchNorm2d(size), nn.ReLU(), _unit(size, 4 * growth, 1),
                nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
            )
            for size in sizes
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class UNet(nn.Module):
    """A U-Net with transposed convolutions (arXiv 1505.04597)."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(_unit(before, width), _unit(width, width)) for before, width in pairwise((3, *widths))
        )
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, 2) for wide, narrow in pairwise(widths[::-1])
        )
        self.up = nn.ModuleList(
            nn.Sequential(_unit(2 * width, width), _unit(width, width)) for width in widths[-2::-1]
        )
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        kept.pop()
        for enlarge, block in zip(self.enlarge, self.up):
            x = block(torch.cat([kept.pop(), enlarge(x)], 1))
        return self.last(x)


class Split(nn.Module):
    """A cross-stage block of a detector: half of the channels go through pairs (C2f)."""

    def __init__(self, channels: int, repeats: int) -> None:
        super().__init__()
        half = channels // 2
        self.first = _unit(channels, channels, 1, act=nn.SiLU)
        self.pairs = nn.ModuleList(
            nn.Sequential(_unit(half, half, act=nn.SiLU), _unit(half, half, act=nn.SiLU))
            for _ in range(repeats)
        )
        self.last = _unit((2 + repeats) * half, channels, 1, act=nn.SiLU)

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


def _inception(inputs: int, a: int, b: int, c: int, d: int) -> nn.Module:
    return Branches(
        _unit(inputs, a, 1), nn.Sequential(_unit(inputs, b // 2, 1), _unit(b // 2, b)),
        nn.Sequential(_unit(inputs, c // 2, 1), _unit(c // 2, c, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), _unit(inputs, d, 1)),
    )  # fmt: skip


def _fire(inputs: int, squeezed: int, outputs: int) -> nn.Module:
    ends = (nn.Sequential(nn.Conv2d(squeezed, outputs, k, 1, k // 2), nn.ReLU()) for k in (1, 3))
    return nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(), Branches(*ends))


def _enlarging(width: int, blocks: int, factor: int) -> nn.Module:
    """Return a network that enlarges images (EDSR, arXiv 1707.02921)."""
    plain = (
        Residual(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)))
        for _ in range(blocks)
    )
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1), *plain, nn.Conv2d(width, 3 * factor**2, 3, 1, 1), nn.PixelShuffle(factor)
    )


def _vgg(*widths: int) -> nn.Module:
    parts = [_unit(before, width) for before, width in pairwise(widths)]
    return nn.Sequential(*parts[:2], nn.MaxPool2d(2), *parts[2:])


def _separable(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(_unit(inputs, inputs, 3, stride, inputs), _unit(inputs, outputs, 1))


Made = tuple[Callable[[], nn.Module], tuple[int, ...]]
_S, _H = nn.SiLU, nn.Hardswish

#: By family: networks and the shapes of their inputs.
FAMILIES: dict[str, list[Made]] = {
    "resnet": [
        (lambda: nn.Sequential(_basic(32, 32), _basic(32, 64, 2), _basic(64, 64)), (1, 32, 28, 28)),
        (lambda: nn.Sequential(_bottleneck(128, 32, 128), _bottleneck(128, 64, 256, 2)), (1, 128, 28, 28)),
        (lambda: nn.Sequential(_basic(96, 96), _basic(96, 192, 2)), (1, 96, 14, 14)),
    ],
    "vgg": [
        (lambda: _vgg(3, 24, 24, 48, 48), (1, 3, 48, 48)),
        (lambda: _vgg(64, 64, 128, 128), (1, 64, 20, 20)),
    ],
    "mobilenet": [
        (lambda: nn.Sequential(_inverted(24, 96, 24), _inverted(24, 96, 32, 3, 2), _inverted(32, 192, 32)),
         (1, 24, 28, 28)),
        (lambda: nn.Sequential(_inverted(40, 120, 40, 5, 1, 32, _H), _inverted(40, 240, 80, 3, 2, 0, _H),
                               _inverted(80, 200, 80, 3, 1, 0, _H)), (1, 40, 14, 14)),
        (lambda: nn.Sequential(_unit(3, 16, 3, 2), _separable(16, 32), _separable(32, 64, 2),
                               _separable(64, 64), _separable(64, 128, 2)), (1, 3, 64, 64)),
    ],
    "efficientnet": [
        (lambda: nn.Sequential(_inverted(24, 144, 24, 3, 1, 6, _S), _inverted(24, 144, 40, 5, 2, 6, _S)),
         (1, 24, 28, 28)),
        (lambda: nn.Sequential(_inverted(80, 480, 112, 5, 1, 20, _S), _inverted(112, 672, 112, 5, 1, 28, _S)),
         (1, 80, 14, 14)),
    ],
    "shufflenet": [
        (lambda: nn.Sequential(*(Shuffled(116) for _ in range(3))), (1, 116, 28, 28)),
        (lambda: nn.Sequential(*(Shuffled(232) for _ in range(4))), (1, 232, 14, 14)),
    ],
    "densenet": [
        (lambda: Dense(64, 3, 32), (1, 64, 28, 28)),
        (lambda: nn.Sequential(Dense(48, 4, 12), _unit(96, 48, 1), nn.AvgPool2d(2), Dense(48, 2, 24)),
         (1, 48, 24, 24)),
    ],
    "unet": [
        (lambda: UNet((16, 32, 64)), (1, 3, 48, 48)),
        (lambda: UNet((24, 48)), (1, 3, 64, 64)),
    ],
    "detector": [
        (lambda: nn.Sequential(_unit(16, 32, 3, 2, act=_S), Split(32, 1), _unit(32, 64, 3, 2, act=_S),
                               Split(64, 1)), (1, 16, 56, 56)),
        (lambda: nn.Sequential(Split(64, 2), _unit(64, 64, act=_S), nn.Conv2d(64, 144, 1)), (1, 64, 20, 20)),
        (lambda: nn.Sequential(Split(128, 1), _unit(128, 128, 3, 2, act=_S)), (1, 128, 16, 16)),
    ],
    "convnext": [
        (lambda: nn.Sequential(Next(48), Next(48), nn.Conv2d(48, 96, 2, 2), Next(96)), (1, 48, 28, 28)),
        (lambda: nn.Sequential(Next(192), Next(192)), (1, 192, 14, 14)),
    ],
    "transformer": [
        (lambda: nn.Sequential(*(Encoder(192, 3, 768, functional.gelu) for _ in range(2))), (1, 49, 192)),
        (lambda: nn.Sequential(*(Encoder(128, 4, 512, functional.silu) for _ in range(2))), (1, 128, 128)),
        (lambda: Encoder(384, 6, 1536, functional.gelu), (1, 64, 384)),
    ],
    "mixer": [
        (lambda: nn.Sequential(Mixer(49, 128), Mixer(49, 128)), (1, 49, 128)),
        (lambda: nn.Sequential(Mixer(196, 96), Mixer(196, 96)), (1, 196, 96)),
    ],
    "inception": [
        (lambda: nn.Sequential(_inception(96, 32, 64, 16, 16), _inception(128, 64, 96, 32, 32)),
         (1, 96, 14, 14)),
        (lambda: nn.Sequential(_inception(64, 32, 48, 24, 24), nn.MaxPool2d(2),
                               _inception(128, 48, 96, 48, 32)), (1, 64, 28, 28)),
    ],
    "squeezenet": [
        (lambda: nn.Sequential(_fire(64, 16, 64), _fire(128, 16, 64), nn.MaxPool2d(2), _fire(128, 32, 128)),
         (1, 64, 27, 27)),
        (lambda: nn.Sequential(_fire(128, 48, 192), _fire(384, 64, 256)), (1, 128, 13, 13)),
    ],
    "regnet": [
        (lambda: nn.Sequential(_bottleneck(48, 48, 48, 1, 3), _bottleneck(48, 96, 96, 2, 6),
                               _bottleneck(96, 96, 96, 1, 6)), (1, 48, 28, 28)),
    ],
    "enlarging": [
        (lambda: _enlarging(32, 3, 2), (1, 3, 40, 40)),
        (lambda: _enlarging(64, 2, 3), (1, 3, 24, 24)),
    ],
    GENERATED: [],
}  # fmt: skip


def generated(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a network drawn from the units above, and the shape of its input."""
    draw = random.Random(seed)
    side = first = 0
    while not 4e3 < side * side * first < 4e4:  # values of the input
        side, first = draw.choice((10, 14, 16, 20, 28, 32, 40)), draw.choice((16, 24, 32, 48, 64, 96, 128))
    channels, parts, shape = first, list[nn.Module](), (1, first, side, side)
    for _ in range(draw.randint(2, 4)):
        act = draw.choice((nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU))
        wide = 8 * draw.randint(max(channels // 16, 2), min(channels // 4, 24) + 2)
        kind = draw.choice(("unit", "unit", "inverted", "bottleneck", "basic", "branches", "separable", "gate"))
        if kind == "unit":
            parts.append(_unit(channels, wide, draw.choice((1, 3, 3, 5)), act=act))
        elif kind == "inverted":
            parts.append(_inverted(channels, 3 * channels, wide, draw.choice((3, 5)), 1, 0, act))
        elif kind == "bottleneck":
            parts.append(_bottleneck(channels, 8 * max(channels // 32, 1), wide))
        elif kind == "basic":
            parts.append(_basic(channels, wide))
        elif kind == "branches":
            half = 8 * max(wide // 16, 1)
            ends = [_unit(channels, half, size, act=act) for size in draw.sample((1, 3, 3, 5), 2)]
            parts.append(Branches(*ends))
            wide = 2 * half
        elif kind == "separable":
            parts.append(_separable(channels, wide))
        else:
            parts += [_unit(channels, wide, 1, act=act), Gate(wide, 8)]
        channels = wide
        if draw.random() < 0.25 and side >= 20:
            parts.append(nn.MaxPool2d(2))
            side //= 2
    return nn.Sequential(*parts), shape


def names(generated_graphs: int) -> list[str]:
    """Return the names of all graphs, families in turn, with so many generated ones."""
    sizes = {family: len(made) for family, made in FAMILIES.items()} | {GENERATED: generated_graphs}
    return [
        f"{family}-{number}"
        for number in range(max(sizes.values()))
        for family, size in sizes.items()
        if number < size
    ]


def family_of(name: str) -> str:
    """Return the family in a graph's name."""
    return name.rpartition("-")[0]


def network(name: str) -> tuple[nn.Module, Tensor]:
    """Return a graph's network with seeded weights of a trained network's scale, and its input.

    Raises
    ------
    KeyError
        There is no graph of that name.
    """
    family, number = family_of(name), name.rpartition("-")[2]
    if family not in FAMILIES or not number.isdigit():
        raise KeyError(name)
    torch.manual_seed(0)
    if family == GENERATED:
        made, shape = generated(int(number))
    elif int(number) < len(FAMILIES[family]):
        make, shape = FAMILIES[family][int(number)]
        made = make()
    else:
        raise KeyError(name)
    return _calibrated(made, shape), torch.randn(shape)


def _calibrated(made: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Give values the scale that they have in a trained network: with others they shrink to denormals."""
    for part in made.modules():
        if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.kaiming_normal_(part.weight)
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # the average over the batches
            part.train()
    with torch.no_grad():
        for _ in range(BATCHES):
            made(torch.randn(4, *shape[1:]))
    return made.eval()
