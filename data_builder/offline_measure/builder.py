"""Programs built here and timed elsewhere: on a GPU that is lent by the minute, say, and has no compiler.

A parcel is a folder. `builder` puts every candidate that MetaSchedule proposes into it as a library; what
its `runner` answers is that nobody has timed it yet. `data_builder.offline_measure.time_parcel` times the
libraries on the other machine, with TVM's runtime alone, and leaves `seconds.jsonl`.

    programs/KEY.so       a library; KEY is the hash of its program and its target
    programs/KEY.cu       the source of its kernels, where this machine has no driver of CUDA's: TVM leaves
                          them uncompiled then, and the other machine compiles them first
    programs.jsonl        {"key", "arguments": [["TENSOR", dtype, shape], ...]} of each
    seconds.jsonl         {"key", "seconds": [float, ...]} or {"key", "error": str}, by the other machine
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from data_builder.offline_measure.manifest import ParcelList
from wmsched.base.cores import usable_cores
from wmsched.metaschedule.measure.builder import KeptBuilder, build
from wmsched.metaschedule.trace_reader import described

NOT_TIMED = "not timed yet: the program is in its parcel"


def key(mod: Any, target: Any) -> str:
    """What a scheduled module is called in a parcel."""
    text = f"{target}\n{mod.script(show_meta=True)}"
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def key_of(result: Any) -> str:
    """The key of what `ParcelBuilder` answers; "" for a program that could not be built."""
    return "" if result.artifact_path is None else Path(str(result.artifact_path)).stem


def export(module: Any) -> str:
    """A built module as a library in a folder of its own; its path. In the builder's process."""
    import tempfile

    path = Path(tempfile.mkdtemp()) / "program.so"
    module.export_library(str(path))
    for imported in getattr(module, "mod", module).imports:
        if imported.kind == "cuda":
            source = imported.inspect_source().encode()
            if source in path.read_bytes():  # machine code would be there in its place
                path.with_suffix(".cu").write_bytes(source)
    return str(path)


@derived_object
class ParcelBuilder(ms.builder.PyBuilder):
    """Builds what a parcel does not have, in a local builder's processes.

    Parameters
    ----------
    folder : Path
        Of the parcel; made if need be.
    timeout : float
        Seconds that a build may take, its worker's start included.
    """

    def __init__(self, folder: Path, *, timeout: float = 60.0, workers: int = 0) -> None:
        super().__init__()
        self.listed = ParcelList(folder)
        self.inner = KeptBuilder(
            max_workers=workers or usable_cores(), timeout_sec=timeout, f_build=build, f_export=export
        )

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """As TVM's: a result for each input; its path is the library's in the parcel."""
        paths = [self.listed.library(key(one.mod, one.target)) for one in build_inputs]
        missing = {path: one for path, one in zip(paths, build_inputs) if path.stem not in self.listed}
        errors: dict[Path, str] = {}
        found = self.inner.build(list(missing.values())) if missing else []
        for (path, one), result in zip(missing.items(), found, strict=True):
            if result.artifact_path is None:
                errors[path] = str(result.error_msg)
                continue
            made = Path(str(result.artifact_path))
            if made.with_suffix(".cu").exists():
                shutil.move(made.with_suffix(".cu"), path.with_suffix(".cu"))
            shutil.move(made, path)
            made.parent.rmdir()
            self.listed.add(path.stem, described(ms.arg_info.ArgInfo.from_entry_func(one.mod)))
        return [
            ms.builder.BuilderResult(None, errors[path])
            if path in errors
            else ms.builder.BuilderResult(str(path), None)
            for path in paths
        ]


@derived_object
class ParcelRunner(ms.runner.PyRunner):
    """Answers for every program that it is not timed yet."""

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """As TVM's: one future for each input, which is done."""
        future = ms.runner.local_runner.LocalRunnerFuture
        return [future(res=None, error_message=NOT_TIMED) for _ in runner_inputs]
