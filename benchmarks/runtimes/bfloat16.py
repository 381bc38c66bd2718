"""Models of `benchmarks.runtimes` in bfloat16: NAME-bf16 is NAME, by each runtime's own switch.

wmsched has ``--bf16``, OpenVINO a hint of the precision, PyTorch autocast. onnxruntime has none on a
processor.
"""

from __future__ import annotations

SUFFIX = "-bf16"
MODELS = ("bert-base", "resnet50", "vit-s", "gpt2")
WITHOUT = ("onnxruntime",)  # runtimes without such a switch


def is_bfloat16(model: str) -> bool:
    """Whether a model's name is that of one in bfloat16."""
    return model.endswith(SUFFIX)
