"""Import of models into Relax: ONNX files, torch.export programs, and the benchmark's models by name.

It needs MetaSchedule's TVM and torch; ONNX files also need the package onnx.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from wmsched.base.errors import EnvironmentProblem, UnknownName, WmschedError
from wmsched.relax.importers.model import Model, sample
from wmsched.relax.importers.onnx_runtime import first_parting, runtime_call
from wmsched.relax.importers.shapes import (
    Shapes,
    by_patterns,
    check_names,
    declared_inputs,
    fix_shapes,
    importing,
    shape_text,
    short,
)
from wmsched.relax.state.pairs import last_rows, pairs_of


def is_file(name: str) -> bool:
    """Whether `name` is a model file and not the name of a model."""
    return Path(name).suffix.lower() in (".onnx", ".pt2")


def load(name: str, shapes: Shapes | None = None, states: Sequence[str] = ()) -> Model:
    """Import the model of a file or name.

    >>> model = load("model.onnx", {"input": (1, 3, 224, 224)})

    Parameters
    ----------
    name : str
        A file ``.onnx`` or ``.pt2``, or a model of `wmsched.zoo.torch_models`.
    shapes : mapping of input name to shape, optional
        Replacements of the exported shapes; needed if these are symbolic.
    states : sequence of str
        Which input of the next call is which output (`wmsched.relax.state.pairs.pairs_of`).

    Raises
    ------
    UnknownName
        There is no such file, model, input or output.
    EnvironmentProblem
        The file is ONNX and the package onnx is not installed.
    WmschedError
        The model cannot be read or imported, or a shape is unknown.
    """
    shapes = dict(shapes or {})
    suffix = Path(name).suffix.lower()
    if suffix in (".onnx", ".pt2"):
        if not Path(name).is_file():
            raise UnknownName(f"{name}: there is no such file")
        read = _read_onnx if suffix == ".onnx" else _read_program
    else:
        read = _build
    with _quiet():
        return read(name, shapes, states)


def load_shapes(name: str, variants: Sequence[Shapes], states: Sequence[str] = ()) -> list[Model]:
    """Import a model with each of several shapes; a file of PyTorch's is read and imported once.

    Raises
    ------
    WmschedError
        As `load`, or two of the shapes are one to the model.
    """
    read: Callable[[Shapes], Model] = functools.partial(load, name, states=states)
    if Path(name).suffix.lower() == ".pt2" and Path(name).is_file():
        read = _read_once(name, states)
    found: list[Model] = []
    for shapes in variants:
        model = read(shapes)
        for other in found:
            if all(one.shape == two.shape for one, two in zip(model.inputs.values(), other.inputs.values())):
                raise WmschedError(f"{name}: two of its --shape choices are the same shape")
        found.append(model)
    return found


def _read_once(name: str, states: Sequence[str]) -> Callable[[Shapes], Model]:
    from wmsched.relax.importers.torch_export import Imported, program_of

    with _quiet():
        program = Imported(name, program_of(name), states)

    def read(shapes: Shapes) -> Model:
        with _quiet():
            return program.model(dict(shapes))

    return read


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), _silence():  # of importers about changed names and fallbacks
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _silence() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _build(name: str, shapes: Shapes, states: Sequence[str]) -> Model:
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
    if states:
        raise WmschedError(f"--state is for models in files; {name!r} has none")
    module, data = torch_models.build(name)
    with torch.inference_mode():
        program = torch.export.export(module, (data,))
    return of_program(name, program, {})


def _read_program(name: str, shapes: Shapes, states: Sequence[str]) -> Model:
    from wmsched.relax.importers.torch_export import read

    return read(name, shapes, states)


def _read_onnx(name: str, shapes: Shapes, states: Sequence[str]) -> Model:
    if importlib.util.find_spec("onnx") is None:
        raise EnvironmentProblem(
            f"{name}: reading it needs the package onnx, which is not installed here: pip install onnx"
        )
    import onnx

    from wmsched.relax.importers.onnx_fold import open_extents, ranks_of
    from wmsched.relax.importers.onnx_import import imported
    from wmsched.relax.state.declare import declared as state_of

    try:
        loaded = onnx.load(name)
    except Exception as error:  # protobuf's and the file system's errors have no common base
        raise WmschedError(
            f"{name}: it cannot be read as an ONNX model ({short(error)}); if its weights are in files of "
            "their own, they must lie beside it"
        ) from error
    open_extents(loaded)
    ranks = ranks_of(loaded)
    names = list(ranks)
    shapes = by_patterns(shapes, names)
    check_names(name, shapes, names)
    for label, shape in shapes.items():
        if ranks[label] not in (len(shape), None):
            raise WmschedError(
                f"--shape {label}={shape_text(shape)}: {name} has {label} with {ranks[label]} dimensions"
            )
    with importing(name, "ONNX models"):
        module = imported(loaded, shapes)
    declared = dict(zip(names, declared_inputs(name, module).values()))
    module, fixed = fix_shapes(name, module, declared, shapes)
    pairs = pairs_of(name, names, [value.name for value in loaded.graph.output], states)
    module, kept = state_of(name, module, pairs)
    kept = tuple(replace(state, name=names[state.input]) for state in kept)
    inputs = {label: sample(shape, declared[label][1]) for label, shape in fixed.items()}
    why = "not available for ONNX: there is no well-kept converter of ONNX to PyTorch"
    peer, why_no_peer = runtime_call(name, inputs)
    peer = None if peer is None else last_rows(peer, kept, list(inputs.values()))
    return Model(
        name=name,
        module=module,
        inputs=inputs,
        why_not_eager=why,
        peer=peer,
        why_no_peer=why_no_peer,
        parting=None if peer is None else functools.partial(first_parting, name, shapes, inputs),
        states=kept,
    )
