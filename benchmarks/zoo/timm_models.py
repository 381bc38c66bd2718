"""Families of timm, the modules of its models: a small model of each, on a small image if it takes one."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.model import Example, NoModel

SIDES = (64, 96, 128)  # of images that are tried before a model's own
FOLDER = "WMSCHED_ZOO"  # environment variable: where timm is installed, if not beside torch
NOISE = 0.03
#: Words that say that a model is small, the smallest first; timm's own tests have tiny ones.
SMALL = (
    "test", "atto", "zepto", "femto", "pico", "nano", "micro", "xxxs", "xxs", "xxt", "xs", "xtiny", "tiny",
    "xt", "mini", "t", "small", "s", "s0", "0", "b0", "a0", "m0", "m1", "t0", "050", "lite",
)  # fmt: skip
COUNTED = 3  # models of a family: to make one takes a second
#: Settings of models of few layers, by the names that families have for them; the first that a model takes.
FEW_LAYERS: tuple[dict[str, Any], ...] = (
    {"depth": 2},
    {"depths": (1, 1, 1, 1)},
    {"layers": (1, 1, 1, 1)},
    {},
)
#: Operators that torchvision's import asks for, and no model of timm.
COMPILED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
DECLARED: list[Any] = []  # a library's operators end with it


def is_there() -> bool:
    """Return whether timm can be imported."""
    if (folder := os.environ.get(FOLDER)) and folder not in sys.path:
        sys.path.append(folder)
    if any(importlib.util.find_spec(name) is None for name in ("timm", "torchvision")):
        return False
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # works around torchvision 0.28 of GPUs beside a torch without: its import needs the
        library = torch.library.Library("torchvision", "FRAGMENT")  # names of operators of its compiled part
        for operator in COMPILED:
            library.define(operator)
        DECLARED.append(library)
    return True


def kinds() -> Iterator[str]:
    """Return the names of all families."""
    import timm

    yield from (name for name in timm.list_modules() if timm.list_models(module=name))


def smallest(family: str) -> str:
    """Return the name of the model with the fewest parameters, of those that are small by their names."""
    import timm

    def rank(name: str) -> tuple[int, int, str]:
        words = [k for k, word in enumerate(SMALL) if word in name.split("_") or name.endswith(word)]
        numbers = re.findall(r"\d+", name.partition("_")[0]) or re.findall(r"\d+", name) or ["0"]
        return min(words, default=len(SMALL)), int(numbers[-1]), name

    def count(name: str) -> int:
        with torch.device("meta"):
            return sum(one.numel() for one in timm.create_model(name).parameters())

    return str(min(sorted(timm.list_models(module=family), key=rank)[:COUNTED], key=count))


def example(family: str, draw: int = 0) -> Example:
    """Return a family's smallest model, with few layers and random weights, and an image.

    Parameters
    ----------
    family : str
    draw : int
        Number of the draw of weights and inputs.

    Raises
    ------
    NoModel
        PyTorch runs it on no image.
    """
    import timm

    name, said = smallest(family), []
    few = _few_layers(name)
    least = list(getattr(timm.get_pretrained_cfg(name), "min_input_size", None) or ())[1:2]
    for layers in (few, {}) if few else ({},):
        for side, settings in [(s, o) for s in (*SIDES, *least) for o in ({}, {"img_size": s})] + [(0, {})]:
            try:
                return _tried(name, side, {**layers, **settings}, draw)
            except Exception as error:  # whatever a model says of an image that it does not take
                said.append(f"{type(error).__name__}: {error}")
    raise NoModel(said[-1])


def _few_layers(name: str) -> dict[str, Any]:
    """Return the settings of few layers that a model takes."""
    import timm

    for settings in FEW_LAYERS:
        try:
            with torch.device("meta"):
                timm.create_model(name, **settings)
        except Exception:  # whatever a model says of a setting that it does not have; no common base
            continue
        return settings
    return {}


def _tried(name: str, side: int, settings: dict[str, Any], draw: int) -> Example:
    """Return a model and an image that it runs on, of a side or of its own size."""
    import timm

    torch.manual_seed(draw)
    model = timm.create_model(name, **settings).eval()
    shape = model.default_cfg["input_size"]
    image = torch.randn(1, shape[0], side or shape[1], side or shape[2])
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn(one.shape) * NOISE)
        model(image)
    return Example(model, {"x": image}, name)


def exported(made: Example) -> Any:
    """Return the model's program."""
    return torch.export.export(made.model, tuple(made.inputs.values()))
