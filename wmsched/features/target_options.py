"""What a target says: its kind, its options and its processor's features, as text or as JSON, without TVM.

All functions but `is_gpu` want the text in lower case.
"""

from __future__ import annotations

import re

GPU_KINDS = ("cuda", "rocm", "opencl", "metal", "vulkan", "nvptx", "webgpu")


def is_gpu(target: str) -> bool:
    """Return whether a target, as text or JSON, is a GPU."""
    return kind_of(target.lower()) in GPU_KINDS


def kind_of(target: str) -> str:
    """Return the target's kind, such as llvm; "" if it names none."""
    found = re.match(r'\s*(?:\{.*?"kind"\s*:\s*")?([a-z_]+)', target)
    return found.group(1) if found else ""


def cpu_features_of(target: str) -> list[tuple[str, bool]]:
    """Return the features in ``-mattr`` in order, and whether each is turned on; the last one wins.

    In JSON ``mattr`` is a list, or a text as after ``-mattr=``.
    """
    found = re.search(r'-mattr[= ]"?([^\s"]+)|"mattr"\s*:\s*(?:\[([^\]]*)\]|"([^"]*)")', target)
    text = next((part for part in found.groups() if part), "") if found else ""
    return [(name.lstrip("+-"), name[0] != "-") for name in re.split(r'[\s,"]+', text) if name]


def option_of(target: str, name: str) -> str:
    """Return the value of ``-name=value`` or of the JSON form; "" if missing."""
    found = re.search(rf'-{name}[= ]([^\s"]+)|"{name}"\s*:\s*"?([^",}}\]]+)', target)
    return next((part for part in found.groups() if part), "").strip() if found else ""
