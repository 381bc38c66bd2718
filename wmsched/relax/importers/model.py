"""Imported model: its Relax module, its inputs, and its run in PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wmsched.base.errors import WmschedError
from wmsched.relax.state.pairs import State

logger = logging.getLogger("wmsched")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Model to tune.

    >>> model = load("resnet50.onnx")
    >>> list(model.inputs)
    ['data']

    Parameters
    ----------
    name : str
        The name that the user gave.
    module : tvm.IRModule
        Relax module with the function ``main``, constant weights and static shapes.
    inputs : dict of str to torch.Tensor
        Inputs of ``main``, in order, with an example's or random values.
    eager : callable or None
        Runs the model on `inputs` in PyTorch eagerly and returns its result.
    on_gpu : callable or None
        Moves the model to PyTorch's first GPU; returns a function that runs it once and waits.
    why_not_eager : str
        Why there is none; "" where there is.
    peer : callable or None
        Runs the file in another runtime on `inputs`, and returns its outputs: onnxruntime, of an ONNX file.
    why_no_peer : str
        Why there is none; "" where there is, and for a model that PyTorch runs.
    parting : callable or None
        Name the first operator whose outputs differ from the peer's; "" where none does.
    returns : str
        Structure of the result (`wmsched.base.pytree.structure`).
    notes : tuple of str
        Behaviour of the model that the tuned model lacks.
    of_gpu : bool
        Whether the model was exported on a GPU.
    states : tuple of State
        Inputs that the next call takes from the outputs; they are among `inputs`.
    """

    name: str
    module: Any
    inputs: dict[str, Any]
    eager: Callable[[], Any] | None = None
    on_gpu: Callable[[], Callable[[], Any]] | None = None
    why_not_eager: str = ""
    peer: Callable[[], Any] | None = None
    why_no_peer: str = ""
    parting: Callable[[], str] | None = None
    returns: str = ""
    notes: tuple[str, ...] = ()
    of_gpu: bool = False
    states: tuple[State, ...] = ()

    def reference(self) -> tuple[Any, str]:
        """Outputs to compare with, and who computed them: PyTorch, onnxruntime; (None, "") without either."""
        for call, name in ((self.eager, "PyTorch"), (self.peer, "onnxruntime")):
            if call is not None:
                try:
                    return call(), name
                except Exception as error:  # a program of another machine or version; no common base
                    logger.info("%s cannot run %s: %s", name, self.name, error)
        return None, ""


def sample(shape: tuple[int, ...], dtype: str) -> Any:
    """Return a tensor of random values; integers are 0 or 1, which are valid indices into most tables."""
    import torch

    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    return torch.randint(0, 2, shape, generator=generator).to(kind)


def tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors of a model's nested output, in order; TVM's as torch's.

    Raises
    ------
    WmschedError
        The output has an unsupported or unknown type.
    """
    import torch
    import tvm
    from torch.utils import _pytree

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tvm.runtime.Tensor):
        # through the CPU: PyTorch's build may support no other device
        yield torch.from_dlpack(value if value.device == tvm.cpu() else value.copyto(tvm.cpu()))
    elif isinstance(value, tvm.runtime.ShapeTuple):
        raise WmschedError(
            f"the model returns a shape, {list(value)}, which is no tensor: export it without that output"
        )
    elif value is None or isinstance(value, (str, bytes, int, float, complex)):
        return  # `returns` holds it; a library returns tensors only
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif hasattr(value, "__iter__"):
        for part in value:
            yield from tensors(part)
    else:  # a type registered with PyTorch
        parts = _pytree.tree_leaves(value)
        if any(part is value for part in parts):
            raise WmschedError(
                f"the model returns something of type {type(value).__name__}, in which no tensor is found: "
                "have it return tensors, or lists or dictionaries of them"
            )
        yield from tensors(parts)
