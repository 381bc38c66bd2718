"""Preparation of a model for tuning: TVM's untuned build, and the module to search schedules for."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm

from wmsched.base.cores import unbound
from wmsched.base.errors import EnvironmentProblem, UnknownName, WmschedError
from wmsched.codegen.tf32 import FLOAT, KEY
from wmsched.features.gpus import TENSOR_CORES, gpu_of
from wmsched.metaschedule import tasks as task_list
from wmsched.metaschedule.intrinsics import import_intrinsics
from wmsched.relax.attention.rewrite import fused_attention
from wmsched.relax.bf16.rewrite import bfloat16
from wmsched.relax.choices.configuration import (
    ALGORITHMS,
    ATTENTION_KERNELS,
    Configuration,
    applied,
    by_rules,
    simplified,
    sites,
)
from wmsched.relax.choices.core import Core
from wmsched.relax.half_precision import HALF, half_products, products_of
from wmsched.relax.importers.model import Model, tensors
from wmsched.relax.importers.shapes import short
from wmsched.relax.int8.rewrite import eight_bits
from wmsched.relax.passes import pipeline
from wmsched.relax.passes.channels_last import channels_last
from wmsched.relax.passes.objects import Objects
from wmsched.relax.passes.wide_fusion import wide_fusion
from wmsched.relax.state.in_place import in_place
from wmsched.relax.state.one_row import one_row
from wmsched.toolchain.resolve import is_cpu
from wmsched.toolchain.targets import target_text
from wmsched.tune import folder as tuned_folder
from wmsched.tune.latency import deviation, library_call

logger = logging.getLogger("wmsched")

#: Of how candidates are compiled and timed, on a processor; all on unless they are turned off.
SETTINGS = (
    "vector_math",
    "pack_weights",
    "channels_last",
    "wide_fusion",
    "eight_bits",
    "winograd",
    "depthwise_kernels",
    "product_kernels",
    "attention_kernels",
    "cold_caches",
)
GPU_SETTINGS = (ATTENTION_KERNELS,)  # those that an NVIDIA GPU has too
BF16 = "bf16"  # one more, off unless it is asked for, because it changes the outputs
OFF = "outputs are off"  # how a build says that it computes something else
IN_BFLOAT16 = (
    " in bfloat16, compared with the float32 model: leave out --bf16, or take it as it is with "
    "--allow-different"
)


@dataclass(frozen=True)
class Untuned:
    """TVM's default build of a model as it came.

    Parameters
    ----------
    library : Path or None
        None where no such build was made: a construction compares with another runtime's outputs.
    outputs
        Of the model's inputs; None where nothing computes them.
    seconds : float
        That its first call took.
    """

    library: Path | None
    outputs: Any
    seconds: float = 0.0


def in_half(model: Model, half: str, target: Any) -> Model:
    """Return the model with its products in a half type and sums in float32; itself for "" and for "tf32".

    What it computes is compared with PyTorch's or onnxruntime's outputs of the model as it came, like any
    model's, and may be off by `latency.COARSE` of the largest.

    Raises
    ------
    UnknownName
        There is no such type.
    WmschedError
        It is not built for the target, or the model has no products in float32.
    """
    if not half:
        return model
    if half not in (*HALF, KEY):
        raise UnknownName(f"--half {half}: there is {', '.join(HALF)} and {KEY}")
    if target.kind.name != "cuda":
        raise WmschedError(
            f"--half {half} is for NVIDIA GPUs (--target cuda), and this target is {target.kind.name}"
        )
    own = FLOAT if half == KEY else half  # TF32 is float32 in memory; the target's key makes the difference
    gpu, needed = gpu_of(target_text(target)), TENSOR_CORES[own]
    if gpu is not None and gpu.capability < needed:
        raise WmschedError(
            f"--half {half} needs compute capability {needed:g}; {gpu.name} has {gpu.capability:g}: take "
            "--half float16, or leave it out"
        )
    module = model.module.with_attr(KEY, True) if half == KEY else half_products(model.module, half)
    if not products_of(module).get(own):
        raise WmschedError(f"{model.name} has no products in float32 that --half {half} could take")
    return replace(model, module=module)


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
        outputs, seconds = _outputs(model, plain, target, path, objects)
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
    return Untuned(path, outputs, seconds)


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
    *,
    allow_different: bool = False,
) -> tuple[Any, dict[str, bool]]:
    """The model as functions in TensorIR, and the settings that this took.

    With channels last, algorithms by rule, attentions as one kernel or operators in eight bits, what it then
    computes is compared, untuned, with the reference. Where they differ, these are left out one by one, and a
    warning says so. With products in bfloat16 it is an error, which `allow_different` makes a warning.

    Parameters
    ----------
    settings : mapping of str to bool
        `SETTINGS` and `BF16`, as `tuned_folder.settled` gives them.
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
        In bfloat16, or with its graph, it computes something else.
    EnvironmentProblem
        The disk is full or the linker fails.
    """
    chosen = dict(settings)
    quantized, last, module = _rewritten(model.module, target, chosen, graph)
    prepared = functions_of_graph(module, target, chosen)
    if module is model.module and not chosen.get(BF16, False):
        return prepared, chosen
    try:
        off, allowed = _off(model, prepared, target, folder, reference, objects, bf16=chosen.get(BF16, False))
        why = "" if off <= allowed else f"the {OFF} by {off:.2g} (allowed: {allowed:g})"
    except EnvironmentProblem:
        raise
    except Exception as error:  # of TVM's build or of the built program; there is no common base
        why = f"the model cannot be built ({str(error).strip()[-300:]})"
    if not why:
        return prepared, chosen
    if any(graph):
        raise WmschedError(f"{model.name}: with the graph chosen for it {why}: leave out --graph-choices")
    if chosen.get(BF16, False) and OFF in why:
        if not allow_different:
            raise WmschedError(f"{model.name}: {why}{IN_BFLOAT16}")
        logger.warning("wmsched: %s: %s in bfloat16", model.name, why)
        return prepared, chosen
    if module is model.module:
        raise WmschedError(f"{model.name}: in bfloat16 {why}; leave out --bf16")
    if module is not last:
        left = next(name for name in ALGORITHMS if chosen.get(name, False))
        said = f"convolutions go without --{left.replace('_', '-')}: with it"
    elif module is not quantized:
        left, said = "channels_last", "channels stay where they are: with them last"
    elif chosen.get(ATTENTION_KERNELS, False) and not is_cpu(target):
        left, said = ATTENTION_KERNELS, "attentions are several kernels each: as one"
    else:
        left, said = "eight_bits", "quantized operators stay in float32: in eight bits"
    logger.warning("wmsched: %s %s", said, why)
    less = chosen | {left: False}
    return prepare_model(model, target, less, folder, reference, objects, allow_different=allow_different)


def functions_of(model: Model, target: Any, settings: Mapping[str, bool], graph: Sequence[int] = ()) -> Any:
    """The model as functions in TensorIR, with its settings and without a comparison.

    Parameters
    ----------
    graph : sequence of int
        Options of its graph (`wmsched.relax.choices`); none of them: what the rules take.
    """
    *_, module = _rewritten(model.module, target, settings, graph)
    return functions_of_graph(module, target, settings)


def functions_of_graph(module: Any, target: Any, settings: Mapping[str, bool]) -> Any:
    """A module of Relax operators as functions, as `functions_of` has them."""
    wide, narrower = _fused(module, target, settings)
    plain = narrower(task_list.tasks_if_any(wide, target))
    return wide if plain is None else plain


def wide_functions_of(
    model: Model, target: Any, settings: Mapping[str, bool], graph: Sequence[int] = ()
) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """The model as functions before it is known whether wide ones have schedules, and what tries others.

    The latter gets the tasks that may have none. It returns the functions to take in place of the first, as
    `functions_of` does, or None.
    """
    *_, module = _rewritten(model.module, target, settings, graph)
    return _fused(module, target, settings)


def configurable(model: Model, target: Any, settings: Mapping[str, bool]) -> Any:
    """The model's module with its settings, in which the options of its graph are found."""
    return simplified(_rewritten(model.module, target, settings)[1])


def algorithms_of(settings: Mapping[str, bool], target: Any) -> list[str]:
    """Algorithms that rules may take; beside bfloat16, which saves more, depthwise kernels alone."""
    found = [name for name in ALGORITHMS if settings.get(name, False) and is_cpu(target)]
    return [name for name in found if name == "depthwise_kernels" or not settings.get(BF16, False)]


def _rewritten(
    module: Any, target: Any, settings: Mapping[str, bool], graph: Sequence[int] = ()
) -> tuple[Any, Any, Any]:
    """The module in eight bits or with a GPU's attentions, that with channels last, that with its graph."""
    module = fused_attention(module, target) if settings.get(ATTENTION_KERNELS, False) else module
    quantized = eight_bits(module, target) if settings["eight_bits"] else module
    last = channels_last(quantized) if settings["channels_last"] else quantized
    algorithms = algorithms_of(settings, target)
    with unbound():
        if not any(graph):
            return quantized, last, by_rules(last, algorithms, Core.of(target)) if algorithms else last
        simple = simplified(last)
        core = Core.of(target)
        found = sites(simple, algorithms=algorithms, core=core)
        return quantized, last, applied(simple, found, Configuration(tuple(graph)), core)


def _fused(
    module: Any, target: Any, settings: Mapping[str, bool]
) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """The module's functions, wide ones if asked for, and what has less wide ones if these have schedules."""

    def prepared(given: Any) -> Any:
        with unbound():  # what computes constants runs
            given = in_place(one_row(given, target), target)
            if settings.get(BF16, False):  # last, when what follows a product stands behind it
                given = bfloat16(given, target)
            return pipeline.prepare(given, target, pack_weights=settings["pack_weights"])

    def narrower(tasks: Sequence[Any]) -> Any:
        import_intrinsics(target)
        without = task_list.unscheduled_work(tasks, target) if settings["wide_fusion"] else 0.0
        if not without:
            return None
        plain = prepared(module)
        if without <= task_list.unscheduled_work(task_list.tasks_if_any(plain, target), target):
            return None
        logger.info("wmsched: products are fused as TVM has it: wider functions have no schedules")
        return plain

    return prepared(wide_fusion(module) if settings["wide_fusion"] else module), narrower


def _off(
    model: Model,
    prepared: Any,
    target: Any,
    folder: Path,
    reference: Any,
    objects: Objects | None,
    *,
    bf16: bool,
) -> tuple[float, float]:
    """How far a prepared module's outputs are from the model's, and how far they may be."""
    with tuned_folder.scratch(folder) as scratch:
        found, _ = _outputs(model, prepared, target, scratch / "last.so", objects)
        if reference is None:
            reference = _eager(model)
        if reference is None:
            reference = build_untuned(model, target, scratch, objects, allow_different=True).outputs
        return deviation(found, reference, model, bf16=bf16)


def _outputs(
    model: Model, module: Any, target: Any, library: Path, objects: Objects | None
) -> tuple[Any, float]:
    """What a prepared module computes of the model's inputs, and in how many seconds; the library stays."""
    pipeline.link(pipeline.compile_module(module, target, objects=objects), library)
    call = library_call(library, target, list(model.inputs.values()))
    began = time.perf_counter()
    with unbound():
        return call(), time.perf_counter() - began


def _eager(model: Model) -> Any:
    """PyTorch's outputs; None where it cannot run the model."""
    if model.eager is None:
        return None
    try:
        return model.eager()
    except Exception as error:  # a program of another machine or version of torch
        logger.info("PyTorch cannot run %s: %s", model.name, error)
        return None
