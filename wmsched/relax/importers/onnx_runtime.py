"""onnxruntime beside an ONNX model, where it is installed: what it computes, how fast, where both part.

An importer's mistake is the same in every build of the imported program; another runtime shows it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from wmsched.base.cores import tvm_threads
from wmsched.base.errors import WmschedError
from wmsched.relax.importers.shapes import Shapes, short

__all__ = ["HOW_TO_GET", "first_parting", "runtime_call"]

HOW_TO_GET = "onnxruntime is not installed: pip install 'wmsched[onnxruntime]'"


def runtime_call(path: str, inputs: Mapping[str, Any]) -> tuple[Callable[[], Any] | None, str]:
    """Return a function that runs an ONNX file in onnxruntime, or None and why there is none.

    Parameters
    ----------
    path : str
    inputs : mapping of str to torch.Tensor
        Values of the file's inputs, by name.

    Returns
    -------
    call : callable () -> list of torch.Tensor, or None
        It has as many threads as TVM's programs.
    why : str
        Why there is none; "" where there is.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None, HOW_TO_GET
    return _Session(path, inputs), ""


MAX_SEEN = 400  # operators whose outputs are compared at once, from the front
OFF = 1e-2  # of the largest element: more than another order of summation makes


def first_parting(path: str, shapes: Shapes, inputs: Mapping[str, Any]) -> str:
    """Return the first operator whose output differs from onnxruntime's, with its output's name, or "".

    Both run the graph once with the outputs of its operators as outputs of its own, on a processor.

    Parameters
    ----------
    path : str
        An ONNX file.
    shapes : mapping of input name to shape
        Replacements of the file's shapes.
    inputs : mapping of str to torch.Tensor
    """
    import onnx

    from wmsched.relax.importers.onnx_peek import outputs_of, peeked

    model = onnx.load(path)
    arrays = {name: value.numpy() for name, value in inputs.items()}
    simple, names, kinds = peeked(model, shapes, MAX_SEEN)
    ours = outputs_of(simple, names, arrays)
    theirs = _all_outputs(model, names, arrays)
    for name in names:
        if _apart(ours[name], theirs[name]):
            return f"{kinds[name]} (output {name})"
    return ""


def _all_outputs(model: Any, names: list[str], arrays: Mapping[str, Any]) -> dict[str, Any]:
    import onnx
    import onnxruntime

    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.output[:]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = {each.name for each in session.get_inputs()}
    found = session.run(names, {name: value for name, value in arrays.items() if name in wanted})
    return dict(zip(names, found))


def _apart(ours: Any, theirs: Any) -> bool:
    import numpy as np

    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return True
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return True
    sound = np.isfinite(b)
    scale = max(float(np.abs(b[sound]).max(initial=0.0)), 1e-12)
    return bool((np.abs(a - b)[sound] > OFF * scale).any())


class _Session:
    """A session that is made when it is first run: many uses of a model never ask what it computes."""

    def __init__(self, path: str, inputs: Mapping[str, Any]) -> None:
        self.path, self.inputs = path, inputs
        self.session: Any = None

    def __call__(self) -> Any:
        import torch

        if self.session is None:
            self._start()
        return [torch.as_tensor(each) for each in self.session.run(None, self.given)]

    def _start(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = tvm_threads(os.environ)
        options.log_severity_level = 4  # what it cannot run is said by the error
        try:
            session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of a model that it does not know; no common base
            raise WmschedError(f"onnxruntime cannot read {self.path} ({short(error)})") from error
        wanted = {each.name for each in session.get_inputs()}
        self.given = {name: data.numpy() for name, data in self.inputs.items() if name in wanted}
        self.session = session
