"""Models of many kinds, small and with random weights: Hugging Face's architectures and plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WORDS, LENGTH, SIZE = 100, 16, 64
Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class First(nn.Module):
    """A Hugging Face model whose first output counts."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, *inputs):
        return self.model(*inputs, return_dict=True, **self.options)[0]


def image(size: int = SIZE) -> tuple[torch.Tensor]:
    return (torch.randn(1, 3, size, size),)


def words() -> tuple[torch.Tensor]:
    return (torch.randint(0, WORDS, (1, LENGTH)),)


def sees(model: str, *, size: int = SIZE, **config: Any) -> Callable[[], Made]:
    """A model of images by the stem of its classes' names."""
    return lambda: (First(_model(model, **config)), image(size))


def reads(model: str, **config: Any) -> Callable[[], Made]:
    """A model of text."""
    return lambda: (First(_model(model, vocab_size=WORDS, **config)), words())


def writes(model: str, head: str = "ForCausalLM", **config: Any) -> Callable[[], Made]:
    """A language model without its cache."""
    return lambda: (First(_model(model, head, vocab_size=WORDS, **config), use_cache=False), words())


def _model(model: str, head: str = "Model", **config: Any) -> nn.Module:
    return getattr(hf, model + head)(getattr(hf, model.removesuffix("Encoder") + "Config")(**config))


def masked() -> Made:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _model("Bert", "ForSequenceClassification", vocab_size=WORDS, **SMALL)

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask, return_dict=True).logits

    return Masked(), (*words(), torch.ones(1, LENGTH, dtype=torch.int64))


def whisper() -> Made:
    config = hf.WhisperConfig(
        d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128, decoder_layers=1,
        decoder_attention_heads=4, max_source_positions=50, num_mel_bins=16,
    )  # fmt: skip
    return First(hf.WhisperModel(config).encoder), (torch.randn(1, 16, 100),)


def wav2vec2() -> Made:
    config = hf.Wav2Vec2Config(
        **SMALL, conv_dim=(32, 32, 32), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    return First(hf.Wav2Vec2Model(config)), (torch.randn(1, 2000),)


def block(inputs: int, outputs: int, stride: int = 1, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), act())


class Unet(nn.Module):
    def __init__(self, up: nn.Module, width: int) -> None:
        super().__init__()
        self.down, self.deep, self.up = block(3, 16), block(16, 32), up
        self.joined, self.out = block(width, 16), nn.Conv2d(16, 2, 1)

    def forward(self, x):
        first = self.down(x)
        deep = self.up(self.deep(nn.functional.max_pool2d(first, 2)))
        return torch.sigmoid(self.out(self.joined(torch.cat([deep, first], 1))))


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(block(3, 16, 2, nn.SiLU), block(16, 32, 2, nn.SiLU))
        self.part, self.out = block(16, 16, act=nn.SiLU), nn.Conv2d(48, 18, 1)

    def forward(self, x):
        first, second = self.stem(x).chunk(2, 1)
        y = self.out(torch.cat([first, second, self.part(second)], 1))
        y = y.view(y.shape[0], 3, 6, -1).transpose(2, 3)
        return torch.cat([y[..., :2].sigmoid(), y[..., 2:4].clamp(max=4).exp(), y[..., 4:].sigmoid()], -1)


class Patches(nn.Module):
    """A convolutional stem before an encoder, as in DETR."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(block(3, 32, 4), nn.Conv2d(32, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.SiLU())
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.encoder(self.stem(x).flatten(2).transpose(1, 2)))


class Squeezed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 16, 2, nn.Hardswish)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 1), nn.Hardsigmoid()
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.head((x * self.gate(x)).mean((2, 3)))


class Last(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.SiLU()) for _ in range(4))

    def forward(self, x):
        weights = torch.softmax(self.gate(x), -1)
        best, places = torch.topk(weights, 2, -1)
        kept = torch.zeros_like(weights).scatter(-1, places, best)
        return sum(kept[..., k : k + 1] * expert(x) for k, expert in enumerate(self.experts))


class Clicks(nn.Module):
    """Embeddings of categories beside numbers, as recommenders have them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(3))
        self.top = nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids, numbers):
        found = [table(ids[:, k]) for k, table in enumerate(self.tables)]
        return torch.sigmoid(self.top(torch.cat([*found, numbers], 1)))


WIDE = [16, 32, 48, 64]
ARCHITECTURES: dict[str, Callable[[], Made]] = {
    "vit": sees("ViT", **SMALL, image_size=SIZE, patch_size=16),
    "deit": sees("DeiT", **SMALL, image_size=SIZE, patch_size=16),
    "beit": sees("Beit", **SMALL, image_size=SIZE, patch_size=16, use_relative_position_bias=True),
    "swin": sees(
        "Swin", image_size=SIZE, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "convnext": sees("ConvNext", hidden_sizes=WIDE, depths=[1, 1, 2, 1]),
    "convnextv2": sees("ConvNextV2", hidden_sizes=WIDE, depths=[1, 1, 2, 1]),
    "resnet": sees("ResNet", embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"),
    "regnet": sees("RegNet", embedding_size=16, hidden_sizes=WIDE, depths=[1] * 4, groups_width=8),
    "mobilenetv1": sees("MobileNetV1", depth_multiplier=0.25, image_size=SIZE),
    "mobilevit": sees(
        "MobileViT", hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 56],
        num_attention_heads=2, image_size=SIZE,
    ),
    "segformer": sees(
        "Segformer", hidden_sizes=[16, 32, 32, 64], depths=[1] * 4, num_attention_heads=[1, 1, 2, 2]
    ),
    "levit": sees(
        "Levit", image_size=SIZE, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[1] * 3,
        key_dim=[8, 8, 8],
    ),
    "poolformer": sees("PoolFormer", hidden_sizes=WIDE, depths=[1] * 4),
    "dinov2": sees(
        "Dinov2", size=56, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=56,
        patch_size=14,
    ),
    "clip vision": sees("CLIPVision", **SMALL, image_size=SIZE, patch_size=16),
    "clip text": reads("CLIPText", **SMALL, max_position_embeddings=32),
    "bert": reads("Bert", **SMALL),
    "bert masked": masked,
    "roberta": reads("Roberta", **SMALL),
    "distilbert": reads("DistilBert", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "albert": reads("Albert", **SMALL, embedding_size=32),
    "electra": reads("Electra", **SMALL, embedding_size=32),
    "deberta": reads(
        "DebertaV2", **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8
    ),
    "mpnet": reads("MPNet", **SMALL),
    "t5 encoder": reads("T5Encoder", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4),
    "gpt2": writes("GPT2", "LMHeadModel", n_embd=64, n_layer=2, n_head=4),
    "llama": writes("Llama", **SMALL, num_key_value_heads=2),
    "qwen2": writes("Qwen2", **SMALL, num_key_value_heads=2),
    "gemma": writes("Gemma", **SMALL, num_key_value_heads=2, head_dim=16),
    "phi": writes("Phi", **SMALL),
    "opt": writes(
        "OPT", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, word_embed_proj_dim=64
    ),
    "gpt neo": writes(
        "GPTNeo", hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    "whisper encoder": whisper,
    "wav2vec2": wav2vec2,
    "unet, transposed": lambda: (Unet(nn.ConvTranspose2d(32, 16, 2, 2), 32), image()),
    "unet, upsampled": lambda: (Unet(nn.Upsample(scale_factor=2, mode="bilinear"), 48), image()),
    "detector": lambda: (Detector(), image()),
    "detr": lambda: (Patches(), image()),
    "squeezed": lambda: (Squeezed(), image()),
    "superresolution": lambda: (
        nn.Sequential(nn.Conv2d(1, 32, 5, 1, 2), nn.Tanh(), nn.Conv2d(32, 36, 3, 1, 1), nn.PixelShuffle(3)),
        (torch.randn(1, 1, 32, 32),),
    ),
    "style": lambda: (
        nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16, True), nn.ReLU()),
        image(32),
    ),
    "volumes": lambda: (
        nn.Sequential(block3d(1, 8), block3d(8, 16), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 4)),
        (torch.randn(1, 1, 16, 16, 16),),
    ),
    "temporal": lambda: (
        nn.Sequential(
            nn.Conv1d(8, 32, 3, padding=2, dilation=2), nn.BatchNorm1d(32), nn.GELU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 4),
        ),
        (torch.randn(1, 8, 100),),
    ),
    "lstm": lambda: (Last(nn.LSTM(32, 64, batch_first=True)), (torch.randn(1, 8, 32),)),
    "gru": lambda: (Last(nn.GRU(32, 64, batch_first=True)), (torch.randn(1, 8, 32),)),
    "experts": lambda: (Experts(), (torch.randn(8, 64),)),
    "clicks": lambda: (Clicks(), (torch.randint(0, 50, (32, 3)), torch.randn(32, 12))),
    "llama, bfloat16": lambda: (writes("Llama", **SMALL)()[0].to(torch.bfloat16), words()),
}  # fmt: skip


def block3d(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, 2, 1), nn.BatchNorm3d(outputs), nn.ReLU())
