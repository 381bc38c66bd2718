"""A model's functions as object files: several are compiled at a time, and each once for all of its builds.

TVM compiles all functions of a build in one thread, and all of them again for the next build, although the
builds of one tuning differ in few: without schedules, with the best, with the second best, with those chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import vm_build

from wmsched.base.cores import usable_cores
from wmsched.base.errors import WmschedError
from wmsched.codegen.tir_reader import has_node

THREADS = 32  # at most


class FunctionFailed(WmschedError):
    """A function of a model that could not be compiled; `function` is its name, the cause is TVM's error."""

    def __init__(self, function: str, error: BaseException) -> None:
        super().__init__(f"the function {function} cannot be compiled: {str(error).strip()[-300:]}")
        self.function = function


class Objects:
    """Compiled functions for a processor, in a folder.

    Parameters
    ----------
    folder : Path
        Where the object files are; no other `Objects` may have the same.
    threads : int, optional
        That compile; by default one for each core that this process may run on.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self.folder = folder
        self.threads = threads or min(usable_cores(), THREADS)
        self.compiled = 0
        self._kept: dict[tuple[str, str], list[tuple[Any, Path]]] = {}  # by name and settings

    def build(self, module: Any, target: Any, settings: str, scope: Callable[[], Any]) -> Any:
        """What `relax.build` makes of a module once its pipeline is through.

        Parameters
        ----------
        module : tvm.IRModule
            As Relax's pipeline leaves it.
        target : tvm.target.Target
            A processor.
        settings : str
            Names what is in the scope: functions are compiled anew under other settings.
        scope : callable ()
            TVM's context to compile in; each thread asks for its own.

        Returns
        -------
        tvm.relax.VMExecutable
        """
        attributes = dict(module.attrs) if module.attrs else {}
        builder = relax.ExecBuilder()
        left = vm_build._vmcodegen(builder, module)
        functions = [f for f in left.functions.values() if isinstance(f, tirx.PrimFunc)]
        libraries = []
        if functions and not any(map(_calls, functions)):
            # One stays TVM's: by its module `export_library` knows what the library is for.
            first = min(functions, key=lambda function: len(_name(function)))
            libraries = self._libraries([f for f in functions if f is not first], target, settings, scope)
            functions = [first]
        with scope():
            return vm_build._vmlink(
                builder,
                target,
                tvm.IRModule({_name(f): f for f in functions}, attrs=left.attrs),
                ext_libs=[*attributes.get("external_mods", []), *libraries],
                params=dict(attributes.get("const_name_to_constant", {})),
            )

    def _libraries(
        self, functions: list[Any], target: Any, settings: str, scope: Callable[[], Any]
    ) -> list[Any]:
        """A module of TVM's for each function."""

        def compile_to(path: Path, function: Any) -> None:
            with scope():
                tirx.build(tvm.IRModule({_name(function): function}), target).write_to_file(str(path))

        paths, waiting = [], []
        with ThreadPoolExecutor(self.threads) as pool:
            try:
                for function in functions:
                    path = self._known(function, settings)
                    if path is None:
                        self.compiled += 1
                        path = self.folder / f"{self.compiled}.o"
                        waiting.append((function, path, pool.submit(compile_to, path, function)))
                    paths.append(path)
                for function, path, done in waiting:
                    try:
                        done.result()
                    except Exception as error:  # TVM's have no common base
                        raise FunctionFailed(_name(function), error) from error
                    self._kept.setdefault((_name(function), settings), []).append((function, path))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        load = tvm.runtime.load_static_library
        return [load(str(path), [_name(function)]) for function, path in zip(functions, paths, strict=True)]

    def _known(self, function: Any, settings: str) -> Path | None:
        kept = self._kept.get((_name(function), settings), [])
        return next((path for known, path in kept if tvm_ffi.structural_equal(known, function)), None)


def _name(function: Any) -> str:
    return str(function.attrs["global_symbol"])


def _calls(function: Any) -> bool:
    """Whether a function calls another one of the module, with which it has to be compiled."""
    return has_node(
        function.body,
        lambda node: isinstance(node, tvm.ir.Call) and isinstance(node.op, tvm.ir.GlobalVar),
    )
