"""What the functions of a tuned folder compute: as the folder says, or read again from the model's file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wmsched.base.cores import unbound
from wmsched.base.errors import WmschedError
from wmsched.relax.passes.describe import Described
from wmsched.tune import folder as tuned_folder
from wmsched.tune.state import as_imported

__all__ = ["functions_of", "read"]


def functions_of(folder: Path, tell: Callable[[str], None] | None = None) -> tuple[dict[str, Described], str]:
    """Return what each function of a folder's library computes, and why that is not known: "" where it is.

    A folder of an older wmsched does not say: its model is read again from its file, which takes seconds.
    """
    try:
        return read(folder / tuned_folder.FUNCTIONS), ""
    except (OSError, ValueError, TypeError, KeyError):
        pass
    about = json.loads((folder / tuned_folder.ABOUT).read_text(encoding="utf-8"))
    name = about["model"]
    if tell is not None:
        tell(f"{folder} does not say what its functions compute: {name} is read again")
    try:
        told = json.loads((folder / tuned_folder.REPORT).read_text(encoding="utf-8"))
        return _again(about, untuned=told["library"]["build"] == "untuned"), ""
    except Exception as error:  # the file has gone, or is another one; importers' errors have no common base
        return {}, f"{name} cannot be read again ({str(error).strip()[-200:]})"


def read(path: Path) -> dict[str, Described]:
    """Read what `wmsched.relax.passes.describe.plain` made JSON of."""
    told = json.loads(path.read_text(encoding="utf-8"))

    def number(value: Any) -> Any:
        return math.nan if value is None else value

    return {name: Described(**{key: number(v) for key, v in one.items()}) for name, one in told.items()}


def _again(about: dict[str, Any], *, untuned: bool) -> dict[str, Described]:
    from wmsched.relax.importers.load import load
    from wmsched.relax.passes import pipeline
    from wmsched.relax.passes.describe import describe
    from wmsched.toolchain.resolve import meta_schedule_tvm
    from wmsched.tune.prepare import SETTINGS, functions_of

    tvm = meta_schedule_tvm()
    shapes, states = as_imported(about)
    is_file = about["model"].endswith((".onnx", ".pt2"))
    model = load(about["model"], shapes if about["model"].endswith(".onnx") else None, states)
    if pipeline.identity(model.module) != about["hash"]:
        raise WmschedError("it is another model by now" if is_file else "this wmsched builds another one")
    target = tvm.target.Target(json.loads(about["target"]))
    if untuned:
        with unbound():  # what computes constants runs
            return describe(pipeline.prepare(model.module, target))
    settings = {name: bool(about.get(name, False)) for name in SETTINGS}
    return describe(functions_of(model, target, settings, about.get("graph", ())))
