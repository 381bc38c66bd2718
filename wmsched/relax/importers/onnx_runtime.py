"""onnxruntime beside an ONNX model, where it is installed: what the model computes, and how fast.

An importer's mistake is the same in every build of the imported program; another runtime shows it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from wmsched.base.cores import tvm_threads
from wmsched.base.errors import WmschedError
from wmsched.relax.importers.shapes import short

__all__ = ["HOW_TO_GET", "runtime_call"]

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
