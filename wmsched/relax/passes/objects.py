"""Object files of a model's functions, compiled in parallel and shared by its builds.

TVM compiles all functions of a build in one thread, and again for the next build. The builds of one tuning
(without schedules, with the best, the second best, the selected ones) differ in few functions.
"""

from __future__ import annotations

import re
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
from wmsched.measure.call_times import BY_CALLS

MAX_THREADS = 32
COMPILED_MAIN, SYMBOL_PREFIX = "__vmtir__main", "__tvm_ffi_"  # TVM's names


class FunctionFailed(WmschedError):
    """A function of a model that could not be compiled; `function` is its name, the cause is TVM's error."""

    def __init__(self, function: str, error: BaseException) -> None:
        super().__init__(f"the function {function} cannot be compiled: {str(error).strip()[-300:]}")
        self.function = function


class Objects:
    """Cache of compiled functions for a processor, in a folder.

    >>> objects = Objects(Path("build"))
    >>> executable = compile_module(prepared, target, database, objects=objects)

    Parameters
    ----------
    folder : Path
        Folder of the object files; no other `Objects` may use it.
    threads : int, optional
        Compiling threads; by default one for each usable core, up to `MAX_THREADS`.

    Attributes
    ----------
    native_main : bool
        Whether ``main`` becomes machine code where that is possible; else the virtual machine's loop runs it.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self.folder = folder
        self.threads = threads or min(usable_cores(), MAX_THREADS)
        self.compiled = 0
        self.native_main = True
        self._kept: dict[tuple[str, str], list[tuple[Any, Path]]] = {}  # by name and settings

    def build(self, module: Any, target: Any, settings: str, scope: Callable[[], Any]) -> Any:
        """Build a module like `relax.build` after its pipeline.

        Parameters
        ----------
        module : tvm.IRModule
            The result of Relax's pipeline.
        target : tvm.target.Target
            A processor.
        settings : str
            Name of the scope's settings; each has compiled functions of its own.
        scope : callable ()
            Makes TVM's context for compilation; each thread makes its own.

        Returns
        -------
        tvm.relax.VMExecutable

        Raises
        ------
        FunctionFailed
            TVM cannot compile one of the functions.
        """
        attributes = dict(module.attrs) if module.attrs else {}
        builder = relax.ExecBuilder()
        left = _generated(builder, module, self.native_main)
        functions = [f for f in left.functions.values() if isinstance(f, tirx.PrimFunc)]
        libraries = []
        if functions and not any(map(_calls, functions)):
            # TVM compiles one function: `export_library` reads the target from its module.
            first = min(functions, key=lambda one: (_name(one) == COMPILED_MAIN, len(_name(one))))
            libraries = self._libraries([f for f in functions if f is not first], target, settings, scope)
            functions = [first]
        try:
            with scope():
                return vm_build._vmlink(
                    builder,
                    target,
                    tvm.IRModule({_name(f): f for f in functions}, attrs=left.attrs),
                    ext_libs=[*attributes.get("external_mods", []), *libraries],
                    params=dict(attributes.get("const_name_to_constant", {})),
                )
        except Exception as error:  # TVM's have no common base
            if len(functions) != 1:
                raise
            raise FunctionFailed(_name(functions[0]), error) from error

    def _libraries(
        self, functions: list[Any], target: Any, settings: str, scope: Callable[[], Any]
    ) -> list[Any]:
        """Return a TVM module for each function."""

        def compile_to(path: Path, function: Any) -> None:
            ours = _name(function) == COMPILED_MAIN
            if ours:
                function = function.with_body(_linked(function.body))
            with scope():
                tirx.build(tvm.IRModule({_name(function): function}), target).write_to_file(str(path))
            if ours:
                _rename_calls(path)

        # A large model's ``main`` takes longest by far: last, it would leave the other threads idle.
        functions = sorted(functions, key=lambda one: _name(one) != COMPILED_MAIN)
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


def _generated(builder: Any, module: Any, native_main: bool) -> Any:
    """Return the functions to compile of a module, whose ``main`` is one of them where that is possible.

    Between two functions the virtual machine's loop takes longer than a small function does. In machine code
    ``main`` calls one after the other. What that loop is asked to do before and after each call
    (`set_instrument`) is possible in `BY_CALLS`, the same function in the machine's own instructions.
    """
    graphs = [function for function in module.functions.values() if isinstance(function, relax.Function)]
    if not native_main or len(graphs) != 1 or _name(graphs[0]) != "main":
        return vm_build._vmcodegen(builder, module)
    others = {name: one for name, one in module.functions.items() if not one.same_as(graphs[0])}
    by_calls = tvm.IRModule(others, attrs=module.attrs)
    by_calls[BY_CALLS] = graphs[0].with_attr("global_symbol", BY_CALLS)
    vm_build._vmcodegen(builder, by_calls)
    return vm_build._vmcodegen(builder, module, "compiled")


def _linked(body: Any) -> Any:
    """Return a body that calls other functions by their symbols, as object files of their own have them."""
    if isinstance(body, tirx.SeqStmt):
        return tirx.SeqStmt([_linked(one) for one in body.seq])
    if isinstance(body, tirx.IfThenElse):
        otherwise = None if body.else_case is None else _linked(body.else_case)
        return tirx.IfThenElse(body.condition, _linked(body.then_case), otherwise)
    call = body.value if isinstance(body, tirx.Evaluate) else None
    if not isinstance(call, tvm.ir.Call) or not str(call.op.name).endswith("call_cpacked"):
        return body
    arguments = [
        tvm.ir.StringImm(SYMBOL_PREFIX + one.value) if isinstance(one, tvm.ir.StringImm) else one
        for one in call.args
    ]
    return tirx.Evaluate(tvm.ir.Call(call.op, arguments, ret_ty=call.ty))


def _rename_calls(path: Path) -> None:
    """Give the functions that an object file calls their names.

    Works around apache-tvm 0.27; remove when its LLVM code generator declares a function of another object
    once. It declares one for each call, and LLVM numbers all but the first: the number is cut off in the
    file's table of names, where each ends with a zero.
    """

    def cut(found: re.Match[bytes]) -> bytes:
        return found[1].ljust(len(found[0]), b"\0")

    path.write_bytes(re.sub(rb"(%b\w+)\.\d+\0" % SYMBOL_PREFIX.encode(), cut, path.read_bytes()))


def _name(function: Any) -> str:
    return str(function.attrs["global_symbol"])


def _calls(function: Any) -> bool:
    """Whether a function calls another one of the module, so that they must be compiled together."""
    return has_node(
        function.body,
        lambda node: isinstance(node, tvm.ir.Call) and isinstance(node.op, tvm.ir.GlobalVar),
    )
