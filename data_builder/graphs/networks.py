"""Small graphs of many architectures, with random weights: blocks of real networks, and generated ones.

A name is FAMILY-NUMBER; graphs of one family are alike and must not be on both sides of a split.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from data_builder.graphs.blocks import (
    Branches,
    Dense,
    Encoder,
    Gate,
    Mixer,
    Next,
    Shuffled,
    Split,
    UNet,
    basic,
    bottleneck,
    enlarging,
    fire,
    inception,
    inverted,
    separable,
    unit,
    vgg,
)

__all__ = ["FAMILIES", "family_of", "generated", "names", "network"]

GENERATED = "generated"
BATCHES = 3  # that the statistics of batch normalisation are of
Made = tuple[Callable[[], nn.Module], tuple[int, ...]]
_S, _H = nn.SiLU, nn.Hardswish

#: By family: networks and the shapes of their inputs.
FAMILIES: dict[str, list[Made]] = {
    "resnet": [
        (lambda: nn.Sequential(basic(32, 32), basic(32, 64, 2), basic(64, 64)), (1, 32, 28, 28)),
        (lambda: nn.Sequential(bottleneck(128, 32, 128), bottleneck(128, 64, 256, 2)), (1, 128, 28, 28)),
        (lambda: nn.Sequential(basic(96, 96), basic(96, 192, 2)), (1, 96, 14, 14)),
    ],
    "vgg": [
        (lambda: vgg(3, 24, 24, 48, 48), (1, 3, 48, 48)),
        (lambda: vgg(64, 64, 128, 128), (1, 64, 20, 20)),
    ],
    "mobilenet": [
        (lambda: nn.Sequential(inverted(24, 96, 24), inverted(24, 96, 32, 3, 2), inverted(32, 192, 32)),
         (1, 24, 28, 28)),
        (lambda: nn.Sequential(inverted(40, 120, 40, 5, 1, 32, _H), inverted(40, 240, 80, 3, 2, 0, _H),
                               inverted(80, 200, 80, 3, 1, 0, _H)), (1, 40, 14, 14)),
        (lambda: nn.Sequential(unit(3, 16, 3, 2), separable(16, 32), separable(32, 64, 2),
                               separable(64, 64), separable(64, 128, 2)), (1, 3, 64, 64)),
    ],
    "efficientnet": [
        (lambda: nn.Sequential(inverted(24, 144, 24, 3, 1, 6, _S), inverted(24, 144, 40, 5, 2, 6, _S)),
         (1, 24, 28, 28)),
        (lambda: nn.Sequential(inverted(80, 480, 112, 5, 1, 20, _S), inverted(112, 672, 112, 5, 1, 28, _S)),
         (1, 80, 14, 14)),
    ],
    "shufflenet": [
        (lambda: nn.Sequential(*(Shuffled(116) for _ in range(3))), (1, 116, 28, 28)),
        (lambda: nn.Sequential(*(Shuffled(232) for _ in range(4))), (1, 232, 14, 14)),
    ],
    "densenet": [
        (lambda: Dense(64, 3, 32), (1, 64, 28, 28)),
        (lambda: nn.Sequential(Dense(48, 4, 12), unit(96, 48, 1), nn.AvgPool2d(2), Dense(48, 2, 24)),
         (1, 48, 24, 24)),
    ],
    "unet": [
        (lambda: UNet((16, 32, 64)), (1, 3, 48, 48)),
        (lambda: UNet((24, 48)), (1, 3, 64, 64)),
    ],
    "detector": [
        (lambda: nn.Sequential(unit(16, 32, 3, 2, act=_S), Split(32, 1), unit(32, 64, 3, 2, act=_S),
                               Split(64, 1)), (1, 16, 56, 56)),
        (lambda: nn.Sequential(Split(64, 2), unit(64, 64, act=_S), nn.Conv2d(64, 144, 1)), (1, 64, 20, 20)),
        (lambda: nn.Sequential(Split(128, 1), unit(128, 128, 3, 2, act=_S)), (1, 128, 16, 16)),
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
        (lambda: nn.Sequential(inception(96, 32, 64, 16, 16), inception(128, 64, 96, 32, 32)),
         (1, 96, 14, 14)),
        (lambda: nn.Sequential(inception(64, 32, 48, 24, 24), nn.MaxPool2d(2),
                               inception(128, 48, 96, 48, 32)), (1, 64, 28, 28)),
    ],
    "squeezenet": [
        (lambda: nn.Sequential(fire(64, 16, 64), fire(128, 16, 64), nn.MaxPool2d(2), fire(128, 32, 128)),
         (1, 64, 27, 27)),
        (lambda: nn.Sequential(fire(128, 48, 192), fire(384, 64, 256)), (1, 128, 13, 13)),
    ],
    "regnet": [
        (lambda: nn.Sequential(bottleneck(48, 48, 48, 1, 3), bottleneck(48, 96, 96, 2, 6),
                               bottleneck(96, 96, 96, 1, 6)), (1, 48, 28, 28)),
    ],
    "enlarging": [
        (lambda: enlarging(32, 3, 2), (1, 3, 40, 40)),
        (lambda: enlarging(64, 2, 3), (1, 3, 24, 24)),
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
        kind = draw.choice(
            ("unit", "unit", "inverted", "bottleneck", "basic", "branches", "separable", "gate")
        )
        if kind == "unit":
            parts.append(unit(channels, wide, draw.choice((1, 3, 3, 5)), act=act))
        elif kind == "inverted":
            parts.append(inverted(channels, 3 * channels, wide, draw.choice((3, 5)), 1, 0, act))
        elif kind == "bottleneck":
            parts.append(bottleneck(channels, 8 * max(channels // 32, 1), wide))
        elif kind == "basic":
            parts.append(basic(channels, wide))
        elif kind == "branches":
            half = 8 * max(wide // 16, 1)
            ends = [unit(channels, half, size, act=act) for size in draw.sample((1, 3, 3, 5), 2)]
            parts.append(Branches(*ends))
            wide = 2 * half
        elif kind == "separable":
            parts.append(separable(channels, wide))
        else:
            parts += [unit(channels, wide, 1, act=act), Gate(wide, 8)]
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
