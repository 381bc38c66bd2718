"""MetaSchedule's local builder with processes that are kept for a whole run.

TVM's starts them anew for each batch, and every one imports TVM first: for the eight programs of a round on
two cores half of the time that the builds take. A process that crashes or takes too long is replaced.
Where only a processor's programs are built, they start without PyTorch (`no_torch`).
"""

from __future__ import annotations

from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.builder.local_builder import _serialize_params, _worker_func
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker
from tvm.support.popen_pool import PopenPoolExecutor, StatusKind

from wmsched.toolchain.no_torch import no_torch, started
from wmsched.toolchain.worker_pools import kill_on_delete

USES = 64  # of a process before it is replaced: what TVM and LLVM do not free must not pile up

kill_on_delete(PopenPoolExecutor)


@derived_object
class KeptBuilder(ms.builder.LocalBuilder._cls):  # type: ignore[misc]
    """TVM's local builder, with its parameters and its results.

    Parameters
    ----------
    torch : bool
        Whether its processes may import PyTorch: what builds for a GPU may, and a function of the user's.
    """

    pool: Any = None

    def __init__(self, *arguments: Any, torch: bool = True, **named: Any) -> None:
        self.torch = torch
        super().__init__(*arguments, **named)

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Build programs, as many at a time as there are processes; a result for each."""
        given = [
            (self.f_build, self.f_export, one.mod, one.target, _serialize_params(one.params))
            for one in build_inputs
        ]
        with no_torch(not self.torch):  # its processes start when they are first given something
            return [self._result(found) for found in self._pool().map_with_error_catching(_call, given)]

    def _result(self, found: Any) -> Any:
        if found.status == StatusKind.COMPLETE:
            return BuilderResult(found.value, None)
        if found.status == StatusKind.TIMEOUT:
            return BuilderResult(None, f"LocalBuilder: Timeout, killed after {self.timeout_sec} seconds")
        return BuilderResult(None, f"LocalBuilder: An exception occurred\n{found.value}")

    def _pool(self) -> Any:
        if self.pool is None:
            self.pool = PopenPoolExecutor(
                max_workers=self.max_workers,
                timeout=self.timeout_sec,
                initializer=self.initializer,
                maximum_process_uses=USES,
            )
        for worker in list(self.pool._worker_map.values()):
            if not worker.is_alive():  # ended between two batches, as Ctrl-C ends all: started anew when used
                worker.kill()
        return self.pool

    def _sanity_check(self) -> None:
        """That its functions are known where they will be called; raises what that raises."""

        def ask() -> None:
            self.pool = None  # of a try before this one
            self._pool().submit(_know, self.f_build, self.f_export).result()

        _, self.torch = started(ask, torch=self.torch)


def _call(given: tuple[Any, ...]) -> Any:
    return _worker_func(*given)


def _know(f_build: Any, f_export: Any) -> None:
    get_global_func_with_default_on_worker(name=f_build, default=None)
    get_global_func_with_default_on_worker(name=f_export, default=None)


# Builds a MetaSchedule candidate without an import that takes longer than the build.


def build(module: Any, target: Any, parameters: Any = None) -> Any:
    """What MetaSchedule's `default_build` does, without its import of all tensor intrinsics.

    That import takes more than twenty seconds of processor time, in every worker of every batch: where the
    processor is shared, longer than a build may take. The schedule that is built has its intrinsics already.
    Goes into ``LocalBuilder(f_build=)``.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    if target.kind.name == "cuda":
        from wmsched.codegen import cuda_headers

        cuda_headers.install()
    with target:  # NVRTC is told the architecture of the target, not of the GPU at hand, which may be none
        return tvm.driver.build(
            RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target
        )


def build_with_vector_math(module: Any, target: Any, parameters: Any = None) -> Any:
    """The same, with exp, tanh and the like in vectors (`wmsched.codegen.register`)."""
    import tvm

    from wmsched.codegen.register import CONFIG

    with tvm.transform.PassContext(config=CONFIG):
        return build(module, target, parameters)
