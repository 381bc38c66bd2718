"""From a Relax module to tasks, and with a database to a library, by the passes of Relax's default build."""

from __future__ import annotations

import contextlib
import logging
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as generic
from tvm.s_tir import dlight

from wmsched.base.errors import EnvironmentProblem
from wmsched.codegen.tir_reader import has_node, stages_of
from wmsched.relax.passes.default_schedules import apply_default_schedules
from wmsched.relax.passes.fold_constants import folding
from wmsched.relax.passes.isolate_gates import CALL_TIR, gates_apart
from wmsched.relax.passes.legalize import LEGAL
from wmsched.relax.passes.objects import Objects
from wmsched.toolchain.resolve import is_cpu

logger = logging.getLogger("wmsched")

LAYS_OUT = "meta_schedule.layout_rewrite_preproc"  # what MetaSchedule marks the block with
GPU_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)


def prepare(module: Any, target: Any, *, pack_weights: bool = False) -> Any:
    """The module as functions in TensorIR, fused: what a search can work on and a build starts from.

    Operators that only training needs are simplified first, and constants folded. With `pack_weights` the
    layout of a weight is free: schedules change it, and `compile_module` lays the constant out so, once.
    """
    with target:
        prepared = tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.CanonicalizeBindings(),
                *relax.pipeline.library_dispatch_passes(target),
                folding(),
                relax.transform.LegalizeOps(LEGAL),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FoldConstant(),
                *([_gates()] if is_cpu(target) else []),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
            ]
        )(module)
    return layout_free(prepared) if pack_weights else prepared


def _gates() -> Any:
    """`gates_apart` as a pass."""
    return tvm.transform.module_pass(lambda module, _: gates_apart(module), opt_level=0, name="GatesApart")


def layout_free(prepared: Any) -> Any:
    """Mark in each function of a prepared module the weight that a schedule may lay out anew.

    That is its largest argument of two dimensions or more that a reduction reads, and that is a constant in
    all calls. (TVM's `AttachAttrLayoutFreeBuffers` marks every constant, biases too, and renames functions.)
    """
    constant: dict[Any, set[int]] = {}

    def visit(call: Any) -> None:
        if isinstance(call, relax.Call) and call.op == CALL_TIR:
            places = {k for k, argument in enumerate(call.args[1]) if isinstance(argument, tvm.ir.Constant)}
            name = call.args[0]
            constant[name] = constant.get(name, places) & places

    visit_functions(prepared, visit)
    marked = {}
    for name, places in constant.items():
        function = prepared[name]
        if isinstance(function, tvm.tirx.PrimFunc) and _static(function):
            weight = _weight(function, places)
            if weight is not None:
                marked[name] = function.with_attr("layout_free_buffers", [weight])
    found = prepared.clone()
    for name, function in marked.items():
        found.update_func(name, function)
    return found


def _weight(function: Any, places: set[int]) -> int | None:
    """The weight's place among the parameters, if one of `places` is such."""
    try:
        stages, _ = stages_of(function)  # parameters come first, of which the outputs, left out, are the last
    except Exception as error:  # a program of another form, of which nothing is known; it stays as it is
        logger.info("the weights of a function stay as they are: %s", error)
        return None
    reduced = {
        access.stage
        for stage in stages
        if any(loop.kind == "R" for loop in stage.iters)
        for access in stage.reads
    }
    sizes = {k: math.prod(stages[k].shape) for k in places & reduced if len(stages[k].shape) > 1}
    return max(sizes, key=lambda k: (sizes[k], -k)) if sizes else None


def identity(module: Any) -> str:
    """Hash of a module's structure: what it computes on which shapes, whatever its weights are."""
    return f"{tvm_ffi.structural_hash(module, skip_tensor_content=True) & (1 << 64) - 1:016x}"


def _static(function: Any) -> bool:
    shapes = [getattr(parameter, "shape", None) for parameter in function.params]
    return all(
        shape is not None and all(isinstance(extent, tvm.tirx.IntImm) for extent in shape) for shape in shapes
    )


def visit_functions(module: Any, visit: Callable[[Any], None]) -> None:
    """Call `visit` with every expression in a module's Relax functions, inner ones first."""
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)


def link(made: Any, library: Path) -> None:
    """Write an executable as a library.

    Raises
    ------
    EnvironmentProblem
        The disk is full or the linker fails: no model is at fault, and no schedule.
    """
    try:
        made.export_library(str(library))
    except (OSError, RuntimeError) as error:
        # the linker's own words, which TVM puts before a command line with a file for each function
        said, command, _ = str(error).partition("\nCommand line:")
        if not command and not isinstance(error, OSError):
            raise
        why = " ".join(said.split())[-400:]
        raise EnvironmentProblem(
            f"{library} cannot be linked ({why}): see that the compiler works and that there is room there "
            f"and in {tempfile.gettempdir()}"
        ) from error


def compile_module(
    prepared: Any,
    target: Any,
    database: Any = None,
    *,
    vector_math: bool = False,
    enable_warning: bool = False,
    objects: Objects | None = None,
    by_rule: Callable[[str, str], bool] | None = None,
) -> Any:
    """An executable of a prepared module; with a database, with the best schedules in it.

    On a GPU, functions without a schedule get one by rules (`dlight`), for without one they cannot run there.
    With `vector_math`, which is for processors, exp, tanh and the like are arithmetic in vectors
    (`wmsched.codegen.register`). With `enable_warning` TVM names the functions that have no schedule.
    With `objects`, which are for processors too, functions that are among these are not compiled again.
    With `by_rule`, a processor's functions without a schedule get one by rules too
    (`wmsched.relax.passes.default_schedules`); it receives their names and the rule that took each.
    """
    config: dict[str, Any] = {}
    if vector_math:
        from wmsched.codegen.register import CONFIG

        config |= CONFIG

    def settings() -> Any:
        return tvm.transform.PassContext(opt_level=3, config=config)

    with contextlib.ExitStack() as stack:
        for scope in (target, database, settings()):
            if scope is not None:
                stack.enter_context(scope)
        passes = []  # made here: the one that applies the database takes it and the target from these scopes
        if database is not None:
            passes.append(relax.transform.MetaScheduleApplyDatabase(enable_warning=enable_warning))
        if relax.pipeline.BackendDispatcher.is_gpu_target(target):
            passes.append(dlight.ApplyDefaultSchedule(*(rule() for rule in GPU_RULES)))
            passes += [*_lowering(target), *relax.pipeline.finalize_passes(target)]
        else:
            if database is not None:  # lays out the weights that `layout_free` marked, once and for all
                passes += [_split_layouts(), folding(), relax.transform.FoldConstant()]
                passes.append(relax.transform.DeadCodeElimination())  # what has laid them out
            if by_rule is not None:
                passes.append(apply_default_schedules(by_rule))
            passes += [*generic.dataflow_lower_passes(target), *generic.finalize_passes(target)]
        pipeline = tvm.transform.Sequential(passes)
        if objects is not None and is_cpu(target):
            return objects.build(pipeline(prepared), target, " ".join(sorted(config)), settings)
        return relax.build(prepared, target=target, relax_pipeline=pipeline)


def _split_layouts() -> Any:
    """TVM's `SplitLayoutRewritePreproc`, which parts the laying out of weights from their use, as a pass.

    It takes programs of loop nests alone, and stops at others, such as a sum along an axis: here it is shown
    those that a schedule lays weights out in.
    """

    @tvm.transform.module_pass(opt_level=0, name="SplitLayouts")
    def split(module: Any, _: Any) -> Any:
        others = {
            name: function
            for name, function in module.functions.items()
            if isinstance(function, tvm.tirx.PrimFunc) and not _lays_out(function)
        }
        shown = tvm.IRModule(
            {name: function for name, function in module.functions.items() if name not in others},
            attrs=module.attrs,
            global_infos=module.global_infos,
        )
        found = relax.transform.SplitLayoutRewritePreproc()(shown)
        for name, function in others.items():
            found[name] = function
        return found

    return split


def _lays_out(function: Any) -> bool:
    return has_node(
        function.body, lambda node: isinstance(node, tvm.s_tir.SBlock) and LAYS_OUT in node.annotations
    )


def _lowering(target: Any) -> list[Any]:
    """TVM 0.27's `relax.pipeline.dataflow_lower_passes`, which its backends forget to name."""
    try:
        return list(relax.pipeline.dataflow_lower_passes(target))
    except AttributeError:
        return list(generic.dataflow_lower_passes(target))
