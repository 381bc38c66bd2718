"""Models of `benchmarks.runtimes`, with random weights: from `wmsched.zoo`, transformers, and small ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.runtimes import networks

BATCHES = 3  # that statistics are of
ZOO = ("resnet50", "mobilenetv2", "bert-base", "gpt2")


class Recurrent(nn.Module):
    """An LSTM whose last output a linear layer reads."""

    def __init__(self, features: int = 64, hidden: int = 128, layers: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def _feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256))


def _convnet() -> nn.Module:
    return nn.Sequential(
        _conv(3, 32, 3, 2), _conv(32, 64, 3, 2), _conv(64, 64, 3), _conv(64, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
    )


class Split(nn.Module):
    """A cross-stage block: half of the channels go through residual pairs, and all are joined (C2f)."""

    def __init__(self, inputs: int, outputs: int, repeats: int, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.shortcut = _conv(inputs, outputs, 1), shortcut
        self.pairs = nn.ModuleList(
            nn.Sequential(_conv(half, half), _conv(half, half)) for _ in range(repeats)
        )
        self.last = _conv((2 + repeats) * half, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for pair in self.pairs:
            parts.append(parts[-1] + pair(parts[-1]) if self.shortcut else pair(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """A one-stage detector of YOLOv8n's size: backbone, pyramid up and down, three heads."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128, 256), classes: int = 80) -> None:
        super().__init__()
        a, b, c, d, e = widths
        self.stem = nn.Sequential(_conv(3, a, 3, 2), _conv(a, b, 3, 2), Split(b, b, 1))
        self.small = nn.Sequential(_conv(b, c, 3, 2), Split(c, c, 2))
        self.middle = nn.Sequential(_conv(c, d, 3, 2), Split(d, d, 2))
        self.large = nn.Sequential(_conv(d, e, 3, 2), Split(e, e, 1))
        self.enter, self.leave = _conv(e, e // 2, 1), _conv(2 * e, e, 1)
        self.up_middle, self.up_small = Split(d + e, d, 1, False), Split(c + d, c, 1, False)
        self.down_small, self.down_middle = _conv(c, c, 3, 2), _conv(d, d, 3, 2)
        self.to_middle, self.to_large = Split(c + d, d, 1, False), Split(d + e, e, 1, False)
        self.heads = nn.ModuleList(
            nn.Sequential(_conv(width, 64), _conv(64, 64), nn.Conv2d(64, 64 + classes, 1))
            for width in (c, d, e)
        )

    def forward(self, x: Tensor) -> Tensor:
        small = self.small(self.stem(x))
        middle = self.middle(small)
        pools = [self.enter(self.large(middle))]
        for _ in range(3):
            pools.append(functional.max_pool2d(pools[-1], 5, 1, 2))
        large = self.leave(torch.cat(pools, 1))
        middle = self.up_middle(torch.cat([functional.interpolate(large, scale_factor=2.0), middle], 1))
        small = self.up_small(torch.cat([functional.interpolate(middle, scale_factor=2.0), small], 1))
        middle = self.to_middle(torch.cat([self.down_small(small), middle], 1))
        large = self.to_large(torch.cat([self.down_middle(middle), large], 1))
        found = [head(x).flatten(2) for head, x in zip(self.heads, (small, middle, large))]
        return torch.cat(found, 2)


class _First(nn.Module):
    """A model of transformers whose first output counts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, return_dict=False)[0]


def _efficientnet() -> nn.Module:
    """EfficientNet-B0 of transformers; OpenVINO refuses its last pooling, a window of 1280 by 1280."""
    config = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "image_size": 224, "hidden_dim": 1280}
    made: Any = _transformers("EfficientNet", "ForImageClassification", **config)()
    made.model.efficientnet.pooler = nn.AdaptiveAvgPool2d(1)
    return made


def _transformers(name: str, head: str, **config: Any) -> Callable[[], nn.Module]:
    """Make a model of the package transformers, by the stem of its classes' names, with random weights."""

    def make() -> nn.Module:
        import transformers

        settings = getattr(transformers, f"{name}Config")(**config)
        return _First(getattr(transformers, f"{name}{head}")(settings))

    return make


def calibrated(model: nn.Module, data: Tensor) -> nn.Module:
    """Give convolutions and batch normalisation the scale of a trained model's.

    As transformers initialises some, values shrink layer by layer to denormals, on which a core is slow.
    """
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    if norms:
        for conv in (part for part in model.modules() if isinstance(part, nn.Conv2d)):
            nn.init.kaiming_normal_(conv.weight)
        for part in norms:
            part.momentum = None  # the average over the batches
            part.train()
        with torch.no_grad():
            for _ in range(BATCHES):
                model(torch.randn(4, *data.shape[1:]))
    return model.eval()


def _whisper() -> nn.Module:
    """The encoder of Whisper tiny."""
    import transformers

    sizes = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    return _First(transformers.WhisperModel(transformers.WhisperConfig(**sizes)).encoder)


IMAGE = (1, 3, 224, 224)
TOKENS = {"t5-encoder": 32128, "recommender": 10000}  # models of whole numbers, and how many there are
OWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (_perceptron, (1, 64)),
    "feed-forward": (_feed_forward, (64, 256)),
    "convnet": (_convnet, (1, 3, 64, 64)),
    "lstm": (Recurrent, (1, 32, 64)),
    "lstm-2x128": (lambda: Recurrent(128, 128, 2), (1, 50, 128)),
    "detector": (Detector, (1, 3, 640, 640)),
    "efficientnet-b0": (_efficientnet, IMAGE),
    "vit-s": (
        _transformers(
            "ViT", "ForImageClassification", hidden_size=384, num_attention_heads=6, intermediate_size=1536
        ),
        IMAGE,
    ),
    "convnext-t": (_transformers("ConvNext", "ForImageClassification"), IMAGE),
    "swin-t": (_transformers("Swin", "ForImageClassification"), IMAGE),
    "whisper-tiny-encoder": (_whisper, (1, 80, 3000)),
    "t5-encoder": (_transformers("T5", "EncoderModel"), (1, 128)),
    "mobilenetv3": (networks.mobilenet_v3, IMAGE),
    "shufflenetv2": (networks.shuffle_net, IMAGE),
    "densenet-121": (networks.dense_net, IMAGE),
    "u-net": (networks.UNet, (1, 3, 256, 256)),
    "recommender": (networks.Recommender, (8, 26)),
}  # fmt: skip


def build(name: str) -> tuple[nn.Module, Tensor]:
    """A model of `OWN` or of the zoo with its seeded weights and input.

    Raises
    ------
    KeyError
        There is no model of that name.
    """
    torch.manual_seed(0)
    if name in OWN:
        make, shape = OWN[name]
        data = torch.randint(TOKENS[name], shape) if name in TOKENS else torch.randn(shape)
        return calibrated(make().eval(), data), data
    from wmsched.zoo import torch_models

    return torch_models.build(name)


def export(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a model as ``NAME.pt2`` and ``NAME.onnx`` into `folder`, unless they are there; their paths.

    Raises
    ------
    ModuleNotFoundError
        onnxscript, which torch.onnx exports with, is not installed.
    """
    program, graph = folder / f"{name}.pt2", folder / f"{name}.onnx"
    if program.is_file() and graph.is_file():
        return program, graph
    folder.mkdir(parents=True, exist_ok=True)
    model, data = build(name)
    with torch.inference_mode():
        exported: Any = torch.export.export(model, (data,))
        torch.export.save(exported, program)
        torch.onnx.export(model, (data,), str(graph), dynamo=True, external_data=False)
    return program, graph
