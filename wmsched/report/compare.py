"""A tuned model beside the runtimes that can run its file here, timed in turns in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wmsched.base.cores import requested_threads, tvm_threads
from wmsched.report.profiler import inputs_of
from wmsched.tune import folder as tuned_folder
from wmsched.tune.latency import ROUNDS, time_interleaved
from wmsched.tune.state import as_imported
from wmsched.tune.tuned_model import TunedModel

__all__ = ["OURS", "compare"]

OURS = "wmsched"


def compare(model: TunedModel, tell: Callable[[str], None], *, rounds: int = ROUNDS) -> dict[str, Any]:
    """Time the model as a user calls it, and PyTorch or onnxruntime with as many threads.

    Returns
    -------
    dict
        ``seconds`` by runtime, medians of turns; ``missing``, by runtime, why there is none.
    """
    about = json.loads((model.folder / tuned_folder.ABOUT).read_text(encoding="utf-8"))
    data = inputs_of(model)
    calls: dict[str, Callable[[], Any]] = {OURS: lambda: model(*data)}
    missing: dict[str, str] = {}
    tell(f"reading {about['model']} for the other runtimes")
    try:
        _add(about, model, calls, missing)
    except Exception as error:  # the file has gone, or is another one; importers' errors have no common base
        missing["others"] = f"{about['model']} cannot be read ({str(error).strip()[-200:]})"
    for name in list(calls):
        try:
            calls[name]()
        except Exception as error:
            missing[name] = f"it cannot run the model here ({str(error).strip()[-200:]})"
            del calls[name]
    tell(f"timing {', '.join(calls)} in turns")
    return {"seconds": time_interleaved(calls, rounds=rounds), "missing": missing}


def _add(
    about: dict[str, Any], tuned: TunedModel, calls: dict[str, Callable[[], Any]], missing: dict[str, str]
) -> None:
    import torch

    from wmsched.relax.importers.load import load

    is_onnx = about["model"].endswith(".onnx")
    shapes, states = as_imported(about)
    model = load(str(Path(about["model"])), shapes if is_onnx else None, states)
    if tuned.sync is not None:
        missing["others"] = "the model is of a GPU: runtimes are compared on processors"
        return
    if model.eager is not None:
        torch.set_num_threads(requested_threads(os.environ) or tvm_threads(os.environ))
        calls["PyTorch eager"] = model.eager
    else:
        missing["PyTorch eager"] = model.why_not_eager
    if model.peer is not None:
        calls["onnxruntime"] = model.peer
    elif is_onnx:
        missing["onnxruntime"] = model.why_no_peer
