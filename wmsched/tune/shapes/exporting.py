"""Export of a PyTorch module whose extents with several choices stay open."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from wmsched.tune.shapes.choices import Choices, variants

__all__ = ["exported_with"]


def exported_with(model: Any, inputs: Sequence[Any], named: Mapping[str, Any], choices: Choices) -> Any:
    """Return `torch.export.export` of a module, with the extents open that have choices.

    Extents with the same choices are one dimension. The example's values are repeated or cut to the largest
    shape: `torch.export` fixes an extent of one.

    Raises
    ------
    ValueError
        A name is no tensor argument of the module, or a shape has another rank than the example's.
    """
    import torch
    from torch.fx.experimental import _config

    bound = inspect.signature(model.forward).bind(*inputs, **named).arguments
    largest = variants(choices)[0]
    dims: dict[tuple[int, ...], Any] = {}
    open_extents: dict[str, Any] = dict.fromkeys(bound)
    given: dict[str, Any] = dict(bound)
    for name, extents in choices.items():
        value = bound.get(name)
        if not isinstance(value, torch.Tensor):
            known = [key for key, one in bound.items() if isinstance(one, torch.Tensor)]
            raise ValueError(
                f"shapes: the model has no example input {name!r} that is a tensor; it has "
                f"{', '.join(known) or 'none'}"
            )
        if value.dim() != len(extents):
            raise ValueError(
                f"shapes: {name} has {len(extents)} extents, and its example {list(value.shape)}"
            )
        own = {}
        for axis, extent in enumerate(extents):
            value = _resized(value, axis, largest[name][axis])
            if len(extent) > 1:
                own[axis] = dims.setdefault(extent, torch.export.Dim(f"extent{len(dims)}", max=max(extent)))
        given[name], open_extents[name] = value, own
    # An extent of one among the choices is like another, not a case of its own.
    with _config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        places = {name: given[name] for name in list(bound)[: len(inputs)]}
        rest = {name: value for name, value in given.items() if name not in places}
        return torch.export.export(
            model,
            tuple(places.values()),
            rest,
            dynamic_shapes=open_extents,
            prefer_deferred_runtime_asserts_over_guards=True,
        )


def _resized(value: Any, axis: int, extent: int) -> Any:
    """Return a tensor cut or repeated along an axis."""
    import torch

    return value.index_select(axis, torch.arange(extent) % value.shape[axis])
