"""Models of torchvision that timm lacks, on small images: segmentation, video, optical flow, detection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo import timm_models
from benchmarks.zoo.model import Example, NoModel

PARTS = ("segmentation", "video", "optical_flow", "detection")
SIDES = (64, 128, 224)  # of images
FRAMES = 16
UNTRAINED = {"weights": None, "weights_backbone": None}


def kinds() -> Iterator[str]:
    """Return the names of all models of these parts."""
    import torchvision

    for part in PARTS:
        yield from torchvision.models.list_models(module=getattr(torchvision.models, part))


def example(name: str, draw: int = 0) -> Example:
    """Return a model with random weights, and images.

    Parameters
    ----------
    name : str
    draw : int
        Number of the draw of weights and images.

    Raises
    ------
    NoModel
        PyTorch runs it on none of the images.
    """
    import torchvision

    part = torchvision.models.get_model_builder(name).__module__.split(".")[2]
    said = []
    torch.manual_seed(draw)
    model = torchvision.models.get_model(name, **(UNTRAINED if part in ("segmentation", "detection") else {}))
    model.eval()
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn(one.shape) * timm_models.NOISE)
        for side in SIDES:
            given = _images(part, side)
            try:
                model(*given.values())
            except Exception as error:  # whatever a model says of an image that it does not take
                said.append(f"{type(error).__name__}: {error}")
            else:
                return Example(model, given, name)
    raise NoModel(said[-1])


def _images(part: str, side: int) -> dict[str, Any]:
    image = torch.rand(1, 3, side, side)
    if part == "detection":
        return {"images": [image[0]]}
    if part == "optical_flow":
        return {"image1": image, "image2": torch.rand(1, 3, side, side)}
    return {"x": torch.randn(1, 3, FRAMES, side, side) if part == "video" else image}


#: The model's program.
exported = timm_models.exported
