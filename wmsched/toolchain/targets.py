"""What this machine can measure: a target by its text, its device, a compiler to link with; for both TVMs."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

from wmsched.base.cores import unpin_main_thread, usable_cores
from wmsched.base.errors import EnvironmentProblem, UnknownName
from wmsched.features.hardware import cuda_target
from wmsched.toolchain import resolve
from wmsched.toolchain.host_cpu import host_cpu, lacking
from wmsched.toolchain.resolve import autoscheduler_tvm, check_linker, is_cpu

TAKES = "such as 'llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu' or 'cuda -arch=sm_89'"
TRIPLE = "mtriple"
NO_CUDA = (
    ": see that nvidia-smi lists one and says CUDA 13 or newer (a driver of 580 or newer), which apache-tvm "
    "0.27 needs; that its libraries are there (pip install cuda-bindings nvidia-cuda-nvrtc "
    "nvidia-cuda-runtime); that CUDA_VISIBLE_DEVICES does not hide it. The TVM that `wmsched setup-tvm` gets "
    "is without CUDA"
)
NO_COMPILER = (
    "TVM compiles CUDA by the package cuda-bindings, which is missing: pip install cuda-bindings "
    "nvidia-cuda-nvrtc nvidia-cuda-runtime, or set TVM_CUDA_COMPILE_MODE=nvcc where a toolkit of CUDA 13 is"
)
META_TAKES = 'a tag such as nvidia/nvidia-a100, or JSON: {"kind": "llvm", "mcpu": "skylake-avx512"}'
CORES = "num-cores"


def measurable_target(text: str | None) -> Any:
    """AutoScheduler's `tvm.target.Target` of a text, by default this machine's processor.

    Raises
    ------
    UnknownName
        TVM does not know it.
    EnvironmentProblem
        There is no such device here, or no compiler to link programs with.
    """
    autoscheduler_tvm()
    from tvm.contrib import cc

    check_linker(cc)
    target = target_of(text, resolve.host_target, TAKES)
    if foreign_triple(target):
        target = target_of(_with_triple(str(text)), resolve.host_target, TAKES)
    need_device(target, text)
    return target


def _with_triple(text: str) -> str:
    if text.lstrip().startswith("{"):
        return json.dumps({**json.loads(text), TRIPLE: resolve.host_triple()})
    return f"{text} -{TRIPLE}={resolve.host_triple()}"


def foreign_triple(target: Any) -> str:
    """The machine that LLVM makes programs for where the target does not say, if it is another than this one.

    The LLVM of the wheel that `wmsched setup-tvm` gets makes them for RISC-V.
    """
    import tvm

    if str(target.kind.name) != "llvm" or TRIPLE in target.attrs:
        return ""
    tell = tvm.get_global_func("tvm.codegen.llvm.GetDefaultTargetTriple", allow_missing=True)
    triple = str(tell()) if tell is not None else ""
    return triple if triple and triple.partition("-")[0] != platform.machine() else ""


def meta_target(text: str | None) -> Any:
    """MetaSchedule's target of a text, JSON or a tag, by default this machine's processor.

    A processor of which no number of cores is said has as many as this process may use.

    Raises
    ------
    UnknownName
        TVM does not know it.
    """
    target = target_of(_whole_cuda(text), meta_host_target, META_TAKES)
    if is_cpu(target) and CORES not in target.attrs:  # MetaSchedule shares work by it
        told = json.loads(target_text(target))
        return target_of(json.dumps(told | {CORES: usable_cores()}), meta_host_target, META_TAKES)
    return target


def need_device(target: Any, text: str | None) -> None:
    """EnvironmentProblem if this machine has no device for the target that `text` names."""
    import tvm

    kind = str(target.kind.name)
    try:
        there = is_cpu(target) or tvm.runtime.device(kind, 0).exist
    except Exception:  # a kind without devices; the TVMs raise different things
        there = False
    if not there:
        raise EnvironmentProblem(
            f"--target {text!r}: this machine, or TVM {tvm.__version__}, has no {kind} device to measure on"
            + (NO_CUDA if kind == "cuda" else "")
        )
    if kind == "cuda" and _without_a_compiler(tvm):
        raise EnvironmentProblem(f"--target {text!r}: {NO_COMPILER}")
    if kind == "cuda" and hasattr(tvm, "s_tir") and (version := _too_old(tvm)):
        raise EnvironmentProblem(
            f"--target {text!r}: this GPU has compute capability {version}, and CUDA 13, which apache-tvm's "
            "wheel is of, compiles for 7.5 (Turing) and newer alone: use a GPU of 2018 or later"
        )
    if wrong := not_run_here(target):
        raise EnvironmentProblem(f"--target {text!r}: {wrong}")


def _too_old(tvm: Any) -> str:
    """The compute capability of a GPU that CUDA 13 compiles nothing for; "" of others."""
    version = str(tvm.runtime.device("cuda", 0).compute_version)
    parts = [int(part) for part in version.split(".") if part.isdigit()]
    return version if parts and parts < [7, 5] else ""


def _without_a_compiler(tvm: Any) -> bool:
    """Whether MetaSchedule's TVM has nothing to compile CUDA with: it asks Python for NVRTC."""
    asks = "nvrtc" in os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower()
    try:
        return asks and hasattr(tvm, "s_tir") and importlib.util.find_spec("cuda.bindings") is None
    except ModuleNotFoundError:  # of `cuda` itself
        return True


def not_run_here(target: Any) -> str:
    """Why this machine's processor cannot run programs for a target, and what to do; "" where it can."""
    wrong = crashes_here(target)
    return wrong and (
        f"its programs {wrong}; leave the target out for this machine's, or give -mcpu (mcpu in JSON) a "
        "processor like it"
    )


def crashes_here(target: Any) -> str:
    """What programs for a target use that this machine's processor has not; "" where they run."""
    from tvm.target import codegen

    missing = lacking(codegen, target) if is_cpu(target) else ()
    if not missing:
        return ""
    return f"use {', '.join(missing)}, which this machine's processor has not: each would crash"


def _whole_cuda(text: str | None) -> str | None:
    """Of "cuda" alone the target of the GPU at hand: without its limits TVM makes no space for it."""
    import tvm

    if text is None or text.strip() != "cuda":
        return text
    device = tvm.runtime.device("cuda", 0)
    if not device.exist:
        return text
    return json.dumps(cuda_target(str(device.device_name), str(device.compute_version)))


def target_of(text: str | None, default: Callable[[], Any], takes: str) -> Any:
    """The `tvm.target.Target` of a text or JSON; without one of what `default` gives.

    Raises
    ------
    UnknownName
        TVM does not know it; the message says what it `takes`.
    """
    import tvm

    try:
        given = json.loads(text) if text and text.lstrip().startswith("{") else text
        return tvm.target.Target(given or default())
    except Exception as error:  # JSON's and TVM's have no common base
        raise UnknownName(
            f"--target {text!r}: TVM {tvm.__version__} does not know it ({str(error).strip()[-200:]}); it "
            f"takes {takes}"
        ) from error


def meta_host_target() -> dict[str, Any]:
    """This machine's LLVM target, as ``tvm.target.Target`` takes it: processor and cores of this process."""
    from tvm.target import Target, codegen

    unpin_main_thread()
    cpu = host_cpu(codegen, Target, f"{platform.machine()}-linux-gnu")
    return {"kind": "llvm", **({"mcpu": cpu} if cpu else {}), "num-cores": usable_cores()}


def target_text(target: Any) -> str:
    """A target as compact JSON, its kind first: the form that databases, datasets and searches agree on.

    Parameters
    ----------
    target : tvm.target.Target, or its JSON as a mapping
    """
    whole = dict(target) if isinstance(target, Mapping) else _plain(target.export())
    host = whole.pop("host", None)
    if isinstance(host, Mapping):  # of a CPU target it is the target itself once more
        host = host.get("kind")
    whole.pop("feature", None)
    if not whole.get("tag"):
        whole.pop("tag", None)
    ordered = {"kind": whole.pop("kind", "")} | {key: whole[key] for key in sorted(whole)}
    if host and host != ordered["kind"]:
        ordered["host"] = host
    return json.dumps(ordered, separators=(",", ":"), default=str)


def _plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (str, int, float, bool)) or value is None:
        return str(value) if isinstance(value, str) else value
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "__iter__"):
        return [_plain(part) for part in value]
    return str(value)
