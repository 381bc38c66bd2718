"""Pipeline from a Relax module to tunable functions, and with a database to a library.

It runs the passes of Relax's default build and ours.
"""

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
from wmsched.codegen import gpu_build
from wmsched.codegen.tir_reader import has_node, stages_of
from wmsched.relax.passes.barrier import without_barriers
from wmsched.relax.passes.default_schedules import apply_default_schedules, is_scheduled
from wmsched.relax.passes.fold_constants import folding
from wmsched.relax.passes.isolate_gates import CALL_TIR, gates_apart
from wmsched.relax.passes.isolate_transposes import transposes_apart
from wmsched.relax.passes.legalize import LEGAL
from wmsched.relax.passes.objects import Objects
from wmsched.toolchain.blob import linking
from wmsched.toolchain.resolve import is_cpu

logger = logging.getLogger("wmsched")

CUDA_GRAPH = "relax.backend.use_cuda_graph"  # TVM's setting
#: TVM's setting: a function does not check its arguments. `main` alone calls it, which checks the inputs.
UNCHECKED = {"tirx.disable_assert": True}
REWRITE_ATTRIBUTE = "meta_schedule.layout_rewrite_preproc"  # MetaSchedule's mark of a layout rewrite block
GPU_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)


def prepare(module: Any, target: Any, *, pack_weights: bool = False) -> Any:
    """Return the module as fused TensorIR functions, for a search or a build.

    It simplifies training operators and folds constants first. `pack_weights` makes the layout of a weight
    free: schedules change it, and `compile_module` rewrites the constant once.
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
                *([_as_pass(gates_apart), _as_pass(transposes_apart)] if is_cpu(target) else []),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                _as_pass(without_barriers),
            ]
        )(module)
    return layout_free(prepared) if pack_weights else prepared


def _as_pass(change: Callable[[Any], Any]) -> Any:
    """Return a function of a module as a pass."""
    return tvm.transform.module_pass(lambda module, _: change(module), opt_level=0, name=change.__name__)


def layout_free(prepared: Any) -> Any:
    """Mark in each function of a prepared module the weight whose layout a schedule may rewrite.

    It is the largest argument of two or more dimensions that a reduction reads and that is constant in all
    calls. (TVM's `AttachAttrLayoutFreeBuffers` marks every constant, biases too, and renames functions.)
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
        if isinstance(function, tvm.tirx.PrimFunc) and _static(function) and not is_scheduled(function):
            weight = _weight(function, places)
            if weight is not None:
                marked[name] = function.with_attr("layout_free_buffers", [weight])
    found = prepared.clone()
    for name, function in marked.items():
        found.update_func(name, function)
    return found


def _weight(function: Any, places: set[int]) -> int | None:
    """Return the index of the weight among the parameters at `places`; None if there is none."""
    try:
        stages, _ = stages_of(function)  # input parameters come first
    except Exception as error:  # a function of unknown form stays unmarked
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
    """Return a hash of a module's operations and shapes, independent of its weights."""
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
        The disk is full or the linker fails.
    """
    try:
        made.export_library(str(library), **linking())
    except (OSError, RuntimeError) as error:
        # TVM puts the linker's message before a command line with a file for each function
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
    cuda_graph: bool = False,
) -> Any:
    """Build an executable of a prepared module, with a database's best schedules.

    Parameters
    ----------
    prepared : tvm.IRModule
        As `prepare` returns it.
    target : tvm.target.Target
        On a GPU, `dlight` schedules the functions without a record, which could not run there otherwise.
    database : tvm.s_tir.meta_schedule.database.Database, optional
    vector_math : bool
        Whether exp, tanh and the like become vector code (`wmsched.codegen.register`); processors only.
    enable_warning : bool
        Whether TVM names the functions without a schedule.
    objects : Objects, optional
        Functions compiled before, which are not compiled again; processors only.
    by_rule : callable (function, rule) -> bool, optional
        Schedule by rules what has no schedule (`wmsched.relax.passes.default_schedules`), and report which;
        processors only.
    cuda_graph : bool
        Whether the kernels between the model's inputs and outputs become CUDA graphs, which are launched at
        once; CUDA only.
    """
    config: dict[str, Any] = {CUDA_GRAPH: True} if cuda_graph else {}
    if vector_math:
        from wmsched.codegen.register import CONFIG

        config |= CONFIG
    if objects is not None and is_cpu(
        target
    ):  # half of a small function's code, a quarter of its compilation
        config |= UNCHECKED

    def settings() -> Any:
        return tvm.transform.PassContext(opt_level=3, config=config)

    with contextlib.ExitStack() as stack:
        for scope in (target, database, settings()):
            if scope is not None:
                stack.enter_context(scope)
        passes = []  # made here: MetaScheduleApplyDatabase reads database and target from these scopes
        if database is not None:
            passes.append(relax.transform.MetaScheduleApplyDatabase(enable_warning=enable_warning))
        if relax.pipeline.BackendDispatcher.is_gpu_target(target):
            if target.kind.name == "cuda":
                gpu_build.install()
                stack.enter_context(gpu_build.settings())
            passes.append(dlight.ApplyDefaultSchedule(*(rule() for rule in GPU_RULES)))
            passes += [*_lowering(target), *relax.pipeline.finalize_passes(target)]
        else:
            if database is not None:  # rewrites the weights that `layout_free` marked
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
    """Return TVM's `SplitLayoutRewritePreproc`, which separates layout rewrites from their use, as a pass.

    Works around apache-tvm 0.27, whose pass fails on functions that are no plain loop nests: it gets only the
    functions with a layout rewrite. Remove when it skips the others.
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
        function.body,
        lambda node: isinstance(node, tvm.s_tir.SBlock) and REWRITE_ATTRIBUTE in node.annotations,
    )


def _lowering(target: Any) -> list[Any]:
    """Return TVM 0.27's `relax.pipeline.dataflow_lower_passes`, which some of its backends lack."""
    try:
        return list(relax.pipeline.dataflow_lower_passes(target))
    except AttributeError:
        return list(generic.dataflow_lower_passes(target))
