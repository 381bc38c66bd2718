"""From a Relax module to tasks, and with a database to a library, by the passes of Relax's default build."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as generic
from tvm.s_tir import dlight
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops

from wmsched.backends.meta_search import Task
from wmsched.errors import WmschedError

logger = logging.getLogger("wmsched")

GPU_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)


def prepare(module: Any, target: Any) -> Any:
    """The module as functions in TensorIR, fused: what a search can work on and a build starts from.

    Operators that only training needs are simplified first, and constants folded.
    """
    with target:
        return tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.CanonicalizeBindings(),
                *relax.pipeline.library_dispatch_passes(target),
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FoldConstant(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
            ]
        )(module)


def identity(module: Any) -> str:
    """Hash of a module's structure: what it computes on which shapes, whatever its weights are."""
    return f"{tvm_ffi.structural_hash(module, skip_tensor_content=True) & (1 << 64) - 1:016x}"


def tasks(prepared: Any, target: Any) -> list[Task]:
    """The tunable functions of a prepared module, those with most operations first.

    Left out are functions that only change a tensor's shape, which Relax makes views of, and those with
    symbolic shapes, and what TVM cannot count the operations of: sorting, which is a call of a library.

    Raises
    ------
    WmschedError
        There is none.
    """
    found = []
    for extracted in ms.relax_integration.extract_tasks(prepared, target):
        mod = extracted.dispatched[0]
        function = mod["main"]
        if relax.analysis.has_reshape_pattern(function) or not _static(function):
            continue
        try:
            flop = float(estimate_tir_flops(mod))
        except Exception as error:  # TVM's: calls of a library, as sorting makes them, have no count
            logger.info(
                "%s is left as it is: TVM cannot count it (%s)", extracted.task_name, str(error)[-200:]
            )
            continue
        found.append(Task(str(extracted.task_name), mod, int(extracted.weight), flop))
    if not found:
        functions = sum(isinstance(function, tvm.tirx.PrimFunc) for function in prepared.functions.values())
        raise WmschedError(
            f"the model has no tunable task: of its {functions} functions in TensorIR all are views of a "
            "tensor or have symbolic shapes; there is nothing for a search to improve"
        )
    return sorted(found, key=lambda task: (-task.weight * task.flop, task.name))


def _static(function: Any) -> bool:
    shapes = [getattr(parameter, "shape", None) for parameter in function.params]
    return all(
        shape is not None and all(isinstance(extent, tvm.tirx.IntImm) for extent in shape) for shape in shapes
    )


def compile_module(prepared: Any, target: Any, database: Any = None) -> Any:
    """An executable of a prepared module; with a database, with the best schedules in it.

    On a GPU, functions without a schedule get one by rules (`dlight`), for without one they cannot run there.
    """
    with contextlib.ExitStack() as stack:
        for scope in (target, database, tvm.transform.PassContext(opt_level=3)):
            if scope is not None:
                stack.enter_context(scope)
        passes = []  # made here: the one that applies the database takes it and the target from these scopes
        if database is not None:
            passes.append(relax.transform.MetaScheduleApplyDatabase(enable_warning=False))
        if relax.pipeline.BackendDispatcher.is_gpu_target(target):
            passes.append(dlight.ApplyDefaultSchedule(*(rule() for rule in GPU_RULES)))
            passes += [*_lowering(target), *relax.pipeline.finalize_passes(target)]
        else:
            passes += [*generic.dataflow_lower_passes(target), *generic.finalize_passes(target)]
        return relax.build(prepared, target=target, relax_pipeline=tvm.transform.Sequential(passes))


def _lowering(target: Any) -> list[Any]:
    """TVM 0.27's `relax.pipeline.dataflow_lower_passes`, which its backends forget to name."""
    try:
        return list(relax.pipeline.dataflow_lower_passes(target))
    except AttributeError:
        return list(generic.dataflow_lower_passes(target))
