"""Preparation of a model for tuning: TVM's untuned build, and the module to search schedules for."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from wmsched.base.cores import unbound
from wmsched.base.errors import EnvironmentProblem, WmschedError
from wmsched.metaschedule import tasks as task_list
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.relax.choices.configuration import Configuration, applied, simplified, sites
from wmsched.relax.importers.model import Model, tensors
from wmsched.relax.importers.shapes import short
from wmsched.relax.int8.rewrite import eight_bits
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.relax.passes.objects import Objects
from wmsched.relax.passes.wide_fusion import wide_fusion
from wmsched.tune import folder as tuned_folder
from wmsched.tune.latency import deviation, library_call

logger = logging.getLogger("wmsched")

#: Of how candidates are compiled and timed, on a processor.
SETTINGS = ("vector_math", "pack_weights", "channels_last", "wide_fusion", "eight_bits", "cold_caches")


@dataclass(frozen=True)
class Untuned:
    """TVM's default build of a model as it came.

    Parameters
    ----------
    library : Path or None
        None where no such build was made: a construction compares with another runtime's outputs.
    outputs
        Of the model's inputs; None where nothing computes them.
    """

    library: Path | None
    outputs: Any


def build_untuned(
    model: Model,
    target: Any,
    folder: Path,
    objects: Objects | None = None,
    *,
    allow_different: bool = False,
) -> Untuned:
    """Build the model without tuning, run it, and compare it with PyTorch or onnxruntime, before a search.

    A warning says so where it does less than the model.

    Parameters
    ----------
    allow_different : bool
        Whether a warning is enough where it computes something else, which no schedule would change.

    Raises
    ------
    WmschedError
        TVM cannot build or run it, it computes something else than the reference, or it returns something
        else than tensors.
    EnvironmentProblem
        The disk is full or the linker fails.
    """
    for note in model.notes:
        logger.warning("wmsched: %s: %s", model.name, note)
    path = folder / "untuned.so"
    try:
        with unbound():
            plain = pipeline.prepare(model.module, target)
        outputs = _outputs(model, plain, target, path, objects)
    except EnvironmentProblem:
        raise
    except Exception as error:  # of TVM's build or of the built program; there is no common base
        raise WmschedError(
            f"{model.name}: TVM {tvm.__version__} cannot build and run it as it is ({short(error)}), and no "
            "schedule changes that; leave out or rewrite the operation that it names"
        ) from error
    list(tensors(outputs))  # each is one, or an error says what it is
    reference, whose = model.reference()
    if reference is not None:
        off, allowed = deviation(outputs, reference, model)
        if off > allowed:
            said = (
                f"{model.name}: TVM computes something else than {whose}, with tuning or without: outputs "
                f"{how_far(off)} (allowed: {allowed:g}){parting_of(model)}. Is it exported with "
                "model.eval()? Do outputs hang on random numbers or on ties?"
            )
            if not allow_different:
                raise WmschedError(f"{said} With --allow-different it is taken as it is")
            logger.warning("wmsched: %s", said)
    return Untuned(path, outputs)


def how_far(off: float) -> str:
    """Say how far outputs are off."""
    return (
        f"are off by {off:.2g} of their largest"
        if math.isfinite(off)
        else "have other shapes, NaN or infinities"
    )


def parting_of(model: Model) -> str:
    """Say at which operator a model parts from its reference, in parentheses; "" where that is not known."""
    if model.parting is None:
        return ""
    try:
        first = model.parting()
    except Exception as error:  # of a runtime on a changed graph; no common base
        logger.info("where %s parts from its reference is not known: %s", model.name, str(error)[-200:])
        return ""
    return f"; they part at {first}" if first else ""


def prepare_model(
    model: Model,
    target: Any,
    settings: Mapping[str, bool],
    folder: Path,
    reference: Any = None,
    objects: Objects | None = None,
    graph: Sequence[int] = (),
) -> tuple[Any, dict[str, bool]]:
    """The model as functions in TensorIR, and the settings that this took.

    With channels last or in eight bits, what the model then computes is compared, untuned, with the
    reference; where they differ, channels or operators stay as they are, and a warning says so.

    Parameters
    ----------
    settings : mapping of str to bool
        `SETTINGS`, as `tuned_folder.settled` gives them.
    folder : Path
        For the libraries that are compared; it is there.
    reference
        The model's outputs; by default PyTorch's or, where that cannot run it, those of `build_untuned`.
    objects : Objects, optional
        Compiled functions, for all builds of the tuning.
    graph : sequence of int
        Options of its graph, which were right when they were chosen.

    Raises
    ------
    WmschedError
        The model does not compute the same with its graph.
    EnvironmentProblem
        The disk is full or the linker fails.
    """
    chosen = dict(settings)
    quantized, module = _rewritten(model.module, target, chosen, graph)
    with unbound():  # `prepare` runs what computes constants
        prepared = _functions(module, target, chosen)
    if module is model.module:
        return prepared, chosen
    try:
        off, allowed = _off(model, prepared, target, folder, reference, objects)
        why = "" if off <= allowed else f"the outputs are off by {off:.2g} (allowed: {allowed:g})"
    except EnvironmentProblem:
        raise
    except Exception as error:  # of TVM's build or of the built program; there is no common base
        why = f"the model cannot be built ({str(error).strip()[-300:]})"
    if not why:
        return prepared, chosen
    if any(graph):
        raise WmschedError(f"{model.name}: with the graph chosen for it {why}: leave out --graph-choices")
    if module is not quantized:
        logger.warning("wmsched: channels stay where they are: with them last %s", why)
        return prepare_model(model, target, chosen | {"channels_last": False}, folder, reference, objects)
    logger.warning("wmsched: quantized operators stay in float32: in eight bits %s", why)
    return prepare_model(model, target, chosen | {"eight_bits": False}, folder, reference, objects)


def functions_of(model: Model, target: Any, settings: Mapping[str, bool], graph: Sequence[int] = ()) -> Any:
    """The model as functions in TensorIR, with its settings and without a comparison.

    Parameters
    ----------
    graph : sequence of int
        Options of its graph (`wmsched.relax.choices`); none of them: today's rules.
    """
    _, module = _rewritten(model.module, target, settings, graph)
    return functions_of_graph(module, target, settings)


def functions_of_graph(module: Any, target: Any, settings: Mapping[str, bool]) -> Any:
    """A module of Relax operators as functions in TensorIR, as `functions_of` has them."""
    with unbound():  # what computes constants runs
        return _functions(module, target, settings)


def configurable(model: Model, target: Any, settings: Mapping[str, bool]) -> Any:
    """The model's module with its settings, in which the options of its graph are found."""
    return simplified(_rewritten(model.module, target, settings)[1])


def _rewritten(
    module: Any, target: Any, settings: Mapping[str, bool], graph: Sequence[int] = ()
) -> tuple[Any, Any]:
    """The module in eight bits, and that one with channels last and the options of its graph, as asked."""
    quantized = eight_bits(module, target) if settings["eight_bits"] else module
    last = channels_last(quantized) if settings["channels_last"] else quantized
    if not any(graph):
        return quantized, last
    with unbound():
        last = simplified(last)
        return quantized, applied(last, sites(last), Configuration(tuple(graph)))


def _functions(module: Any, target: Any, settings: Mapping[str, bool]) -> Any:
    """The module as functions in TensorIR, wide ones unless MetaSchedule has schedules for less of those."""

    def prepared(given: Any) -> Any:
        return pipeline.prepare(given, target, pack_weights=settings["pack_weights"])

    def left(functions: Any) -> float:
        try:
            tasks = task_list.tasks(functions, target)
        except task_list.NothingToTune:
            return 0.0
        return sum(task.weight * task.flop for task in task_list.without_schedules(tasks, target))

    if not settings["wide_fusion"]:
        return prepared(module)
    import_intrinsics(target)
    wide = prepared(wide_fusion(module))
    without = left(wide)
    if not without:
        return wide
    plain = prepared(module)
    if without <= left(plain):
        return wide
    logger.info("wmsched: products are fused as TVM has it: wider functions have no schedules")
    return plain


def _off(
    model: Model, prepared: Any, target: Any, folder: Path, reference: Any, objects: Objects | None
) -> tuple[float, float]:
    """How far a prepared module's outputs are from the model's, and how far they may be."""
    with tuned_folder.scratch(folder) as scratch:
        found = _outputs(model, prepared, target, scratch / "last.so", objects)
        if reference is None:
            reference = _eager(model)
        if reference is None:
            reference = build_untuned(model, target, scratch, objects, allow_different=True).outputs
        return deviation(found, reference, model)


def _outputs(model: Model, module: Any, target: Any, library: Path, objects: Objects | None) -> Any:
    """What a prepared module computes of the model's inputs; the library is left there."""
    pipeline.link(pipeline.compile_module(module, target, objects=objects), library)
    call = library_call(library, target, list(model.inputs.values()))
    with unbound():
        return call()


def _eager(model: Model) -> Any:
    """PyTorch's outputs; None where it cannot run the model."""
    if model.eager is None:
        return None
    try:
        return model.eager()
    except Exception as error:  # a program of another machine or version of torch
        logger.info("PyTorch cannot run %s: %s", model.name, error)
        return None
