"""Whole models into Relax: ONNX files, torch.export programs, and the benchmark's models by name.

Needs MetaSchedule's TVM and torch; ONNX files need the package onnx besides.
"""

from __future__ import annotations

import difflib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmsched.base.errors import EnvironmentProblem, UnknownName, WmschedError
from wmsched.relax.importers.shapes import (
    Shapes,
    check_names,
    declared_inputs,
    fix_shapes,
    importing,
    shape_text,
    short,
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that can be tuned.

    Parameters
    ----------
    name : str
        As the user gave it.
    module : tvm.IRModule
        Relax, with the function ``main``; weights are constants in it, and all shapes are numbers.
    inputs : dict of str to torch.Tensor
        Of ``main``, in its order; the values are an example's or random.
    eager : callable or None
        Runs the model on `inputs` in PyTorch, eagerly; returns whatever it returns.
    on_gpu : callable or None
        Moves the model to PyTorch's first GPU; returns a function that runs it there once and waits for it.
    why_not_eager : str
        Why there is none; "" where there is.
    returns : str
        What it returns besides tensors (`wmsched.base.pytree.structure`).
    notes : tuple of str
        What the tuned model will not do of what the model does.
    of_gpu : bool
        Whether it was exported on a GPU.
    """

    name: str
    module: Any
    inputs: dict[str, Any]
    eager: Callable[[], Any] | None = None
    on_gpu: Callable[[], Callable[[], Any]] | None = None
    why_not_eager: str = ""
    returns: str = ""
    notes: tuple[str, ...] = ()
    of_gpu: bool = False


def is_file(name: str) -> bool:
    """Whether `name` is a model in a file rather than the name of one."""
    return Path(name).suffix.lower() in (".onnx", ".pt2")


def load(name: str, shapes: Shapes | None = None) -> Model:
    """The model of that file or name.

    Parameters
    ----------
    name : str
        A file ``.onnx`` or ``.pt2``, or a model of `wmsched.zoo.torch_models`.
    shapes : mapping of input name to shape, optional
        In place of the shapes the model was exported with; needed where these are symbolic.

    Raises
    ------
    UnknownName
        There is no such file, model, or input.
    EnvironmentProblem
        It is an ONNX file, and the package onnx is not installed.
    WmschedError
        It cannot be read or imported, or a shape is not known.
    """
    shapes = dict(shapes or {})
    suffix = Path(name).suffix.lower()
    if suffix in (".onnx", ".pt2"):
        if not Path(name).is_file():
            raise UnknownName(f"{name}: there is no such file")
        read = _read_onnx if suffix == ".onnx" else _read_program
    else:
        read = _build
    with warnings.catch_warnings(), _silence():  # about names that importers change and ways they try
        warnings.simplefilter("ignore")
        return read(name, shapes)


@contextmanager
def _silence() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _build(name: str, shapes: Shapes) -> Model:
    import torch

    from wmsched.relax.importers.torch_export import of_program
    from wmsched.zoo import torch_models

    if name not in torch_models.MODELS:
        near = difflib.get_close_matches(name, torch_models.MODELS, n=3, cutoff=0.4) or torch_models.MODELS
        raise UnknownName(
            f"no benchmark model is called {name!r}; did you mean {', '.join(near)}? "
            "A model of your own is given as a file: .onnx, or .pt2 of torch.export.save"
        )
    if shapes:
        raise WmschedError(f"--shape is for models in files; {name!r} has the benchmark's shapes")
    module, data = torch_models.build(name)
    with torch.inference_mode():
        program = torch.export.export(module, (data,))
    return of_program(name, program, {})


def _read_program(name: str, shapes: Shapes) -> Model:
    from wmsched.relax.importers.torch_export import read

    return read(name, shapes)


def _read_onnx(name: str, shapes: Shapes) -> Model:
    if importlib.util.find_spec("onnx") is None:
        raise EnvironmentProblem(
            f"{name}: reading it needs the package onnx, which is not installed here: pip install onnx"
        )
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    from wmsched.relax.importers.onnx_fold import folded, open_extents, ranks_of
    from wmsched.relax.importers.onnx_quantized import written_out
    from wmsched.relax.importers.onnx_recurrent import recurrent_operators
    from wmsched.relax.passes.accumulate_fp32 import wide_sums
    from wmsched.relax.passes.split_to_slices import cut_apart

    try:
        loaded = onnx.load(name)
    except Exception as error:  # protobuf's and the file system's have no common base
        raise WmschedError(
            f"{name}: it cannot be read as an ONNX model ({short(error)}); if its weights are in files of "
            "their own, they must lie beside it"
        ) from error
    open_extents(loaded)
    ranks = ranks_of(loaded)
    names = list(ranks)
    check_names(name, shapes, names)
    for label, shape in shapes.items():
        if ranks[label] not in (len(shape), None):
            raise WmschedError(
                f"--shape {label}={shape_text(shape)}: {name} has {label} with {ranks[label]} dimensions"
            )
    with importing(name, "ONNX models"), recurrent_operators():
        module = from_onnx(
            folded(written_out(loaded), shapes),
            shape_dict={label: list(shape) for label, shape in shapes.items()},
        )
        module = cut_apart(wide_sums(module))
    declared = dict(zip(names, declared_inputs(name, module).values()))
    module, fixed = fix_shapes(name, module, declared, shapes)
    inputs = {label: sample(shape, declared[label][1]) for label, shape in fixed.items()}
    why = "not available for ONNX: there is no well-kept converter of ONNX to PyTorch"
    return Model(name=name, module=module, inputs=inputs, why_not_eager=why)


def sample(shape: tuple[int, ...], dtype: str) -> Any:
    """Random values; whole numbers are 0 and 1, which are good indices into most tables."""
    import torch

    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    return torch.randint(0, 2, shape, generator=generator).to(kind)


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in a model's output, in order, whatever they are packed in; TVM's as torch's.

    Raises
    ------
    WmschedError
        There is something in it that no library gives back, or that is of an unknown type.
    """
    import torch
    import tvm
    from torch.utils import _pytree

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tvm.runtime.Tensor):
        # by way of the processor: PyTorch's build may know no other device
        yield torch.from_dlpack(value if value.device == tvm.cpu() else value.copyto(tvm.cpu()))
    elif isinstance(value, tvm.runtime.ShapeTuple):
        raise WmschedError(
            f"the model returns a shape, {list(value)}, which is no tensor: export it without that output"
        )
    elif value is None or isinstance(value, (str, bytes, int, float, complex)):
        return  # a model may return it (`returns`), a library does not
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif hasattr(value, "__iter__"):
        for part in value:
            yield from tensors(part)
    else:  # of a type that PyTorch has been told of
        parts = _pytree.tree_leaves(value)
        if any(part is value for part in parts):
            raise WmschedError(
                f"the model returns something of type {type(value).__name__}, in which no tensor is found: "
                "have it return tensors, or lists or dictionaries of them"
            )
        yield from tensors(parts)
