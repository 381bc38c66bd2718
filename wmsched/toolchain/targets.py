"""Parse and check targets of either TVM: text to target, device present, compiler and linker present."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

from wmsched.base.cores import unpin_main_thread, usable_cores
from wmsched.base.errors import EnvironmentProblem, UnknownName
from wmsched.features.gpus import cuda_target
from wmsched.toolchain import resolve
from wmsched.toolchain.host_cpu import host_cpu, lacking
from wmsched.toolchain.resolve import autoscheduler_tvm, check_linker, is_cpu

TARGET_FORMS = "such as 'llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu' or 'cuda -arch=sm_89'"
TRIPLE = "mtriple"
NO_CUDA_REMEDY = (
    ": see that nvidia-smi lists one and says CUDA 13 or newer (a driver of 580 or newer), which apache-tvm "
    "0.27 needs; that its libraries are there (pip install cuda-bindings nvidia-cuda-nvrtc "
    "nvidia-cuda-runtime); that CUDA_VISIBLE_DEVICES does not hide it. The TVM that `wmsched setup-tvm` gets "
    "is without CUDA"
)
NO_NVRTC_REMEDY = (
    "TVM compiles CUDA by the package cuda-bindings, which is missing: pip install cuda-bindings "
    "nvidia-cuda-nvrtc nvidia-cuda-runtime, or set TVM_CUDA_COMPILE_MODE=nvcc where a toolkit of CUDA 13 is"
)
META_TARGET_FORMS = 'a tag such as nvidia/nvidia-a100, or JSON: {"kind": "llvm", "mcpu": "skylake-avx512"}'
CORES = "num-cores"


def measurable_target(text: str | None) -> Any:
    """Return AutoScheduler's `tvm.target.Target` for a text, by default this machine's CPU.

    Raises
    ------
    UnknownName
        TVM does not know the target.
    EnvironmentProblem
        This machine has no such device, or no compiler to link programs with.

    Examples
    --------
    >>> measurable_target("llvm -mcpu=skylake-avx512")
    """
    autoscheduler_tvm()
    from tvm.contrib import cc

    check_linker(cc)
    target = target_of(text, resolve.host_target, TARGET_FORMS)
    if foreign_triple(target):
        target = target_of(_with_triple(str(text)), resolve.host_target, TARGET_FORMS)
    need_device(target, text)
    return target


def _with_triple(text: str) -> str:
    if text.lstrip().startswith("{"):
        return json.dumps({**json.loads(text), TRIPLE: resolve.host_triple()})
    return f"{text} -{TRIPLE}={resolve.host_triple()}"


def foreign_triple(target: Any) -> str:
    """Return LLVM's default triple if the target names none and the default is not this machine's; else "".

    The LLVM of the wheel from `wmsched setup-tvm` defaults to RISC-V.
    """
    import tvm

    if str(target.kind.name) != "llvm" or TRIPLE in target.attrs:
        return ""
    tell = tvm.get_global_func("tvm.codegen.llvm.GetDefaultTargetTriple", allow_missing=True)
    triple = str(tell()) if tell is not None else ""
    return triple if triple and triple.partition("-")[0] != platform.machine() else ""


def meta_target(text: str | None) -> Any:
    """Return MetaSchedule's target for a text, JSON or tag, by default this machine's CPU.

    A CPU target without a core count gets the number of cores this process may use.

    Raises
    ------
    UnknownName
        TVM does not know the target.

    Examples
    --------
    >>> meta_target('{"kind": "llvm", "mcpu": "skylake-avx512"}')
    """
    target = target_of(_whole_cuda(text), meta_host_target, META_TARGET_FORMS)
    if is_cpu(target) and CORES not in target.attrs:  # MetaSchedule splits parallel work by it
        attributes = json.loads(target_text(target))
        return target_of(
            json.dumps(attributes | {CORES: usable_cores()}), meta_host_target, META_TARGET_FORMS
        )
    return target


def with_key(target: Any, key: str) -> Any:
    """Return a target that has one more key, by which rules may ask for it."""
    keys = [*map(str, target.keys), key]
    return meta_target(json.dumps({**json.loads(target_text(target)), "keys": list(dict.fromkeys(keys))}))


def need_device(target: Any, text: str | None) -> None:
    """Raise EnvironmentProblem if this machine cannot measure on the target that `text` names."""
    import tvm

    kind = str(target.kind.name)
    if not has_device(target):
        raise EnvironmentProblem(
            f"--target {text!r}: this machine, or TVM {tvm.__version__}, has no {kind} device to measure on"
            + (NO_CUDA_REMEDY if kind == "cuda" else "")
        )
    need_compiler(target, text)
    if kind == "cuda" and hasattr(tvm, "s_tir") and (version := _outdated_capability(tvm)):
        raise EnvironmentProblem(
            f"--target {text!r}: this GPU has compute capability {version}, and CUDA 13, which apache-tvm's "
            "wheel is of, compiles for 7.5 (Turing) and newer alone: use a GPU of 2018 or later"
        )
    if wrong := not_run_here(target):
        raise EnvironmentProblem(f"--target {text!r}: {wrong}")


def has_device(target: Any) -> bool:
    """Return whether this machine has a device of a target's kind."""
    import tvm

    try:
        return bool(is_cpu(target) or tvm.runtime.device(str(target.kind.name), 0).exist)
    except Exception:  # a kind without devices; each TVM raises another exception
        return False


def need_compiler(target: Any, text: str | None) -> None:
    """Raise EnvironmentProblem if TVM cannot compile for the target that `text` names: CUDA needs NVRTC."""
    import tvm

    if str(target.kind.name) == "cuda" and _lacks_cuda_compiler(tvm):
        raise EnvironmentProblem(f"--target {text!r}: {NO_NVRTC_REMEDY}")


def _outdated_capability(tvm: Any) -> str:
    """Return the GPU's compute capability if CUDA 13 cannot compile for it; "" otherwise."""
    version = str(tvm.runtime.device("cuda", 0).compute_version)
    parts = [int(part) for part in version.split(".") if part.isdigit()]
    return version if parts and parts < [7, 5] else ""


def _lacks_cuda_compiler(tvm: Any) -> bool:
    """Return whether MetaSchedule's TVM lacks NVRTC, which it loads through the package cuda-bindings."""
    asks = "nvrtc" in os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower()
    try:
        return asks and hasattr(tvm, "s_tir") and importlib.util.find_spec("cuda.bindings") is None
    except ModuleNotFoundError:  # no package `cuda` at all
        return True


def not_run_here(target: Any) -> str:
    """Return why this machine's CPU cannot run a target's programs, with a remedy; "" if it can."""
    wrong = crashes_here(target)
    return wrong and (
        f"its programs {wrong}; leave the target out for this machine's, or give -mcpu (mcpu in JSON) a "
        "processor like it"
    )


def crashes_here(target: Any) -> str:
    """Return the instructions that a target's programs use and this CPU lacks, as text; "" if none."""
    from tvm.target import codegen

    missing = lacking(codegen, target) if is_cpu(target) else ()
    if not missing:
        return ""
    return f"use {', '.join(missing)}, which this machine's processor has not: each would crash"


def _whole_cuda(text: str | None) -> str | None:
    """Return the full target of the local GPU for "cuda"; other texts are returned unchanged.

    Without the GPU's limits TVM makes no design space.
    """
    import tvm

    if text is None or text.strip() != "cuda":
        return text
    device = tvm.runtime.device("cuda", 0)
    if not device.exist:
        return text
    return json.dumps(cuda_target(str(device.device_name), str(device.compute_version)))


def target_of(text: str | None, default: Callable[[], Any], takes: str) -> Any:
    """Return the `tvm.target.Target` for a text or JSON; for no text, of what `default` returns.

    Raises
    ------
    UnknownName
        TVM does not know the target; the message lists the accepted forms, `takes`.
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
    """Return this machine's LLVM target as a dict for ``tvm.target.Target``: CPU name and usable cores."""
    from tvm.target import Target, codegen

    unpin_main_thread()
    cpu = host_cpu(codegen, Target, f"{platform.machine()}-linux-gnu")
    return {"kind": "llvm", **({"mcpu": cpu} if cpu else {}), "num-cores": usable_cores()}


def target_text(target: Any) -> str:
    """Return a target as compact JSON with the kind first, the form in databases, datasets and searches.

    Parameters
    ----------
    target : tvm.target.Target, or its JSON as a mapping
    """
    whole = dict(target) if isinstance(target, Mapping) else _plain(target.export())
    host = whole.pop("host", None)
    if isinstance(host, Mapping):  # a CPU target repeats itself as its host
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
