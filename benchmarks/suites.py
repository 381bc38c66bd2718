"""Benchmark tasks as data: the models' names and the 22 representatives (paper, tables 1 and 2).

The paper names each representative by its position in its own extraction. Positions differ between versions
of TVM, so a representative is described here by what it computes: the operators Relay fused (`ops`) and the
shapes of its tensors. `python -m benchmarks.models.export` finds the one task that matches, and says so when
none does.
"""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Representative:
    """One subgraph type and the task that stands for it; `index` is the task's place in the zoo's model."""

    type: str
    title: str
    model: str
    index: int
    ops: str
    shapes: tuple[Shape, ...]
    paper_task: str


REPRESENTATIVES = (
    Representative(
        "conv3d-bn-relu",
        "Conv3d+BN+ReLU",
        "resnet3d18",
        1,
        "conv3d_add_relu",
        ((1, 16, 56, 56, 64), (3, 3, 3, 64, 64), (1, 1, 1, 1, 64), (1, 16, 56, 56, 64)),
        "task1",
    ),
    Representative(
        "conv3d",
        "Conv3d",
        "resnet3d18",
        12,
        "conv3d_add",
        ((1, 16, 56, 56, 64), (1, 1, 1, 64, 128), (1, 1, 1, 1, 128), (1, 8, 28, 28, 128)),
        "task15",
    ),
    Representative(
        "ffn",
        "FFN",
        "bert-base",
        0,
        "dense_add_multiply_multiply_erf_add_multiply",
        ((128, 768), (3072, 768), (1, 3072), (128, 3072)),
        "task2",
    ),
    Representative(
        "attention-qk",
        "Attention (QK MatMul)",
        "opt-1.3b-attention",
        1,
        "batch_matmul_add",
        ((32, 128, 64), (32, 128, 64), (1, 128, 128), (32, 128, 128)),
        "task1",
    ),
    Representative(
        "layernorm-variance",
        "LayerNorm (variance)",
        "gpt2",
        7,
        "variance",
        ((128, 768), (128, 1), (128, 1)),
        "task0",
    ),
    Representative("layernorm-mean", "LayerNorm (mean)", "gpt2", 8, "mean", ((128, 768), (128, 1)), "task8"),
    Representative(
        "attention-projection",
        "Attention (projection)",
        "opt-1.3b-attention",
        0,
        "dense_add",
        ((128, 2048), (2048, 2048), (1, 2048), (128, 2048)),
        "task4",
    ),
    Representative(
        "softmax",
        "Softmax",
        "opt-1.3b-attention",
        3,
        "softmax",
        ((32, 128, 128), (32, 128, 128)),
        "task3",
    ),
    Representative(
        "fully-connected",
        "Fully Connected",
        "resnet50",
        24,
        "dense_add",
        ((1, 2048), (1000, 2048), (1, 1000), (1, 1000)),
        "task0",
    ),
    Representative(
        "avgpool2d",
        "AvgPool2d",
        "mobilenetv2",
        31,
        "adaptive_avg_pool2d",
        ((1, 7, 7, 1280), (1, 1, 1, 1280)),
        "task1",
    ),
    Representative(
        "attention-value",
        "PV Attention Value Aggregation",
        "bert-base",
        5,
        "batch_matmul",
        ((12, 128, 128), (12, 64, 128), (12, 128, 64)),
        "task6",
    ),
    Representative(
        "qkv-projection",
        "QKV Projection MatMul",
        "gpt-neo-2.7b-attention",
        0,
        "dense",
        ((128, 768), (768, 768), (128, 768)),
        "task0",
    ),
    Representative(
        "maxpool2d",
        "MaxPool2d",
        "resnet50",
        25,
        "max_pool2d",
        ((1, 112, 112, 64), (1, 56, 56, 64)),
        "task21",
    ),
    Representative(
        "conv2d-relu",
        "Conv2d + ReLU",
        "resnet50",
        2,
        "conv2d_add_relu",
        ((1, 14, 14, 1024), (1, 1, 1024, 256), (1, 1, 1, 256), (1, 14, 14, 256)),
        "task6",
    ),
    Representative(
        "conv2d",
        "Conv2d",
        "mobilenetv2",
        15,
        "conv2d_add",
        ((1, 14, 14, 384), (1, 1, 384, 96), (1, 1, 1, 96), (1, 14, 14, 96)),
        "task31",
    ),
    Representative(
        "depthconv-relu",
        "DepthConv + ReLU",
        "mobilenetv2",
        22,
        "conv2d_add_clip",
        ((1, 14, 14, 384), (3, 3, 384, 1), (1, 1, 1, 384), (1, 14, 14, 384)),
        "task4",
    ),
    Representative(
        "conv2d-add",
        "Conv2d + Add",
        "mobilenetv2",
        10,
        "conv2d_add_add",
        ((1, 14, 14, 64), (1, 14, 14, 384), (1, 1, 384, 64), (1, 1, 1, 64), (1, 14, 14, 64)),
        "task6",
    ),
    Representative(
        "depthconv",
        "DepthConv",
        "mobilenetv2",
        21,
        "conv2d_add_clip",
        ((1, 112, 112, 96), (3, 3, 96, 1), (1, 1, 1, 96), (1, 56, 56, 96)),
        "task22",
    ),
    Representative(
        "conv2d-add-relu",
        "Conv2d + Add + ReLU",
        "resnet50",
        1,
        "conv2d_add_add_relu",
        ((1, 14, 14, 256), (1, 1, 256, 1024), (1, 1, 1, 1024), (1, 14, 14, 1024), (1, 14, 14, 1024)),
        "task7",
    ),
    Representative(
        "conv2d-pad-relu",
        "Conv2d + Pad + ReLU",
        "resnet50",
        0,
        "conv2d_add_relu",
        ((1, 56, 56, 64), (3, 3, 64, 64), (1, 1, 1, 64), (1, 56, 56, 64)),
        "task3",
    ),
    Representative(
        "conv2d-stride-relu",
        "Conv2d + Stride + ReLU",
        "resnet50",
        11,
        "conv2d_add_relu",
        ((1, 56, 56, 128), (3, 3, 128, 128), (1, 1, 1, 128), (1, 28, 28, 128)),
        "task5",
    ),
    Representative(
        "conv2d-stride-add",
        "Conv2d + Stride + Add",
        "resnet50",
        17,
        "conv2d_add",
        ((1, 56, 56, 256), (1, 1, 256, 512), (1, 1, 1, 512), (1, 28, 28, 512)),
        "task26",
    ),
)


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a representative's shapes say of its convolution; inputs by their places."""

    data: int
    weight: int
    bias: int
    residual: tuple[int, ...]
    stride: list[int]
    padding: list[int]
    depthwise: bool


def convolution(entry: Representative) -> Convolution:
    """The convolution of a representative whose `ops` begin with one: channels last, weights as HWIO."""
    *inputs, out = entry.shapes
    # the residual comes first among AutoScheduler's inputs where it has the output's shape
    alike = [place for place, shape in enumerate(inputs) if shape == out]
    residual = tuple(alike[: entry.ops.count("add") - 1])
    data, weight, bias = [place for place in range(len(inputs)) if place not in residual][:3]
    kernel, axes = inputs[weight], len(inputs[data]) - 2
    return Convolution(
        data,
        weight,
        bias,
        residual,
        stride=[inputs[data][1 + axis] // out[1 + axis] for axis in range(axes)],
        padding=[extent // 2 for extent in kernel[:axes]],
        depthwise=axes == 2 and kernel[3] == 1 and kernel[2] == inputs[data][3],
    )


BY_TYPE = {entry.type: entry for entry in REPRESENTATIVES}
