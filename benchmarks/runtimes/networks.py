"""Networks of `benchmarks.runtimes` that no installed package has, after their papers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from data_builder.graphs.blocks import UShape


def _unit(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


class Gate(nn.Module):
    """Squeeze and excitation with a hard sigmoid (Howard et al. 2019, section 5.3)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        middle = -(-channels // 32) * 8
        self.ends = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, middle, 1), nn.ReLU(),
            nn.Conv2d(middle, channels, 1), nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * self.ends(x)


class Inverted(nn.Module):
    """An inverted residual: expansion, depthwise convolution, gate, projection."""

    def __init__(
        self, inputs: int, size: int, wide: int, outputs: int, gate: bool, swish: bool, stride: int
    ) -> None:
        super().__init__()
        self.shortcut = stride == 1 and inputs == outputs
        active = nn.Hardswish if swish else nn.ReLU
        parts = [*_unit(inputs, wide, 1), active()] if wide != inputs else []
        parts += [*_unit(wide, wide, size, stride, wide), active()]
        parts += [Gate(wide)] if gate else []
        self.body = nn.Sequential(*parts, *_unit(wide, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


# kernel, expansion, outputs, gate, hard swish, stride (Howard et al. 2019, table 1)
LARGE = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
    (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
    (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
    (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
)  # fmt: skip


def mobilenet_v3() -> nn.Module:
    """MobileNetV3-Large (arXiv 1905.02244)."""
    parts: list[nn.Module] = [*_unit(3, 16, 3, 2), nn.Hardswish()]
    before = 16
    for size, wide, outputs, gate, swish, stride in LARGE:
        parts.append(Inverted(before, size, wide, outputs, bool(gate), bool(swish), stride))
        before = outputs
    parts += [*_unit(before, 960, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


class Shuffled(nn.Module):
    """A unit of ShuffleNetV2: half of the channels pass by, then all are shuffled (arXiv 1807.11164)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.down = stride == 2
        self.passed = nn.Sequential(
            *_unit(inputs, inputs, 3, 2, inputs), *_unit(inputs, half, 1), nn.ReLU()
        )  # fmt: skip
        if not self.down:
            self.passed = nn.Sequential()
        self.worked = nn.Sequential(
            *_unit(inputs if self.down else half, half, 1), nn.ReLU(),
            *_unit(half, half, 3, stride, half), *_unit(half, half, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        left, right = (x, x) if self.down else x.chunk(2, 1)
        joined = torch.cat([self.passed(left), self.worked(right)], 1)
        batch, channels, height, width = joined.shape
        turned = joined.reshape(batch, 2, channels // 2, height, width).transpose(1, 2)
        return turned.reshape(batch, channels, height, width)


def shuffle_net() -> nn.Module:
    """ShuffleNetV2, width 1.0."""
    parts: list[nn.Module] = [*_unit(3, 24, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 24
    for outputs, repeats in ((116, 4), (232, 8), (464, 4)):
        for number in range(repeats):
            parts.append(Shuffled(before, outputs, 1 if number else 2))
            before = outputs
    parts += [*_unit(before, 1024, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(1024, 1000))


class Dense(nn.Module):
    """A block whose layers read all earlier ones (arXiv 1608.06993)."""

    def __init__(self, inputs: int, layers: int, growth: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + growth * number), nn.ReLU(),
                *_unit(inputs + growth * number, 4 * growth, 1), nn.ReLU(),
                nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
            )
            for number in range(layers)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def dense_net() -> nn.Module:
    """DenseNet-121."""
    parts: list[nn.Module] = [*_unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for number, layers in enumerate((6, 12, 24, 16)):
        if number:
            parts += [nn.BatchNorm2d(channels), nn.ReLU()]
            parts += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
        parts.append(Dense(channels, layers))
        channels += 32 * layers
    parts += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(channels, 1000))


class UNet(UShape):
    """A U-Net with transposed convolutions (arXiv 1505.04597), padded, normalised."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256), classes: int = 2) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            self._twice(before, width) for before, width in zip((3, *widths), widths)
        )  # fmt: skip
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, 2) for wide, narrow in zip(widths[:0:-1], widths[-2::-1])
        )
        self.up = nn.ModuleList(self._twice(2 * width, width) for width in widths[-2::-1])
        self.last = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def _twice(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(*_unit(inputs, outputs, 3), nn.ReLU(), *_unit(outputs, outputs, 3), nn.ReLU())


class Recommender(nn.Module):
    """Embeddings of categories and a perceptron over them (after arXiv 1906.00091, all features sparse)."""

    def __init__(self, categories: int = 26, rows: int = 10000, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(categories))
        self.rank = nn.Sequential(
            nn.Linear(categories * width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, ids: Tensor) -> Tensor:
        found = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        return torch.sigmoid(self.rank(torch.cat(found, 1)))
