"""MetaSchedule local builder whose processes stay for a whole run.

TVM's builder starts new processes for each batch, and each imports TVM first: half of the build time for 8
programs on 2 cores. A process that crashes or takes too long is replaced. The processes start without PyTorch
(`no_torch`), for a GPU too where they find CUDA's libraries without it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.builder.local_builder import _serialize_params, _worker_func
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker
from tvm.support.popen_pool import PopenPoolExecutor, StatusKind

from wmsched.toolchain.no_torch import no_torch, started
from wmsched.toolchain.worker_pools import kill_on_delete

MAX_PROCESS_USES = 64  # bounds the memory that TVM and LLVM leak in one process

kill_on_delete(PopenPoolExecutor)


@derived_object
class KeptBuilder(ms.builder.LocalBuilder._cls):  # type: ignore[misc]
    """TVM's local builder, with the same parameters and results, whose processes stay.

    >>> ms.tune_tir(mod, target, work_dir, 64, builder=KeptBuilder(f_build=build))

    Parameters
    ----------
    torch : bool
        Whether its processes may import PyTorch, as a user's function may need.
    check : callable, optional
        What a process without PyTorch runs first, a function of a module; if it raises, the processes have
        PyTorch.
    """

    pool: Any = None

    def __init__(
        self,
        *arguments: Any,
        torch: bool = True,
        check: Callable[[], None] | None = None,
        **named: Any,
    ) -> None:
        self.torch, self.check = torch, check
        super().__init__(*arguments, **named)

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Build programs in parallel; return a result for each."""
        given = [
            (self.f_build, self.f_export, one.mod, one.target, _serialize_params(one.params))
            for one in build_inputs
        ]
        with no_torch(not self.torch):  # the processes start with their first program
            return [self._result(found) for found in self._pool().map_with_error_catching(_build_one, given)]

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
                maximum_process_uses=MAX_PROCESS_USES,
            )
        for worker in list(self.pool._worker_map.values()):
            if not worker.is_alive():  # Ctrl-C may have ended it; TVM restarts it on use
                worker.kill()
        return self.pool

    def _sanity_check(self) -> None:
        """Check that the worker processes know the build functions; raise the worker's error if not."""

        checks = iter([self.check])  # the first try's; with PyTorch there is nothing to fall back to

        def ask() -> None:
            self.pool = None  # of an earlier try
            check = next(checks, None)
            self._pool().submit(_resolve_functions, self.f_build, self.f_export, check).result()

        _, self.torch = started(ask, torch=self.torch)


def _build_one(given: tuple[Any, ...]) -> Any:
    return _worker_func(*given)


def _resolve_functions(f_build: Any, f_export: Any, check: Callable[[], None] | None) -> None:
    if check is not None:
        check()
    get_global_func_with_default_on_worker(name=f_build, default=None)
    get_global_func_with_default_on_worker(name=f_export, default=None)


def build(module: Any, target: Any, parameters: Any = None) -> Any:
    """Build a candidate like MetaSchedule's `default_build`, without its import of all tensor intrinsics.

    Works around apache-tvm 0.27, whose import takes over 20 s of processor time in every worker, on a shared
    processor more than the time limit. Remove when it is fast. A scheduled program has its intrinsics.

    >>> ms.builder.LocalBuilder(f_build=build)
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    with contextlib.ExitStack() as stack:
        stack.enter_context(target)  # NVRTC then gets the target's architecture; there may be no GPU here
        if target.kind.name == "cuda":
            from wmsched.codegen import gpu_build

            gpu_build.install()
            stack.enter_context(gpu_build.settings())
        return tvm.driver.build(
            RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target
        )


def build_with_vector_math(module: Any, target: Any, parameters: Any = None) -> Any:
    """Build like `build`, with vector code for exp, tanh and the like (`wmsched.codegen.register`)."""
    import tvm

    from wmsched.codegen.register import CONFIG

    with tvm.transform.PassContext(config=CONFIG):
        return build(module, target, parameters)


def export_shared(module: Any) -> str:
    """Write a candidate as a shared library and return its path, for devices that have no linker.

    TVM's own function writes an archive, which whoever loads it links.
    """
    path = Path(tempfile.mkdtemp()) / "program.so"
    module.export_library(str(path))
    return str(path)
