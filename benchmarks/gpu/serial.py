"""A GPU's schedule as loops of a processor: the same TensorIR, with threads one after another.

A thread's own loops, blocks and shared tensors stay what they are. Loops over threads become plain loops, and
a GPU's memory becomes memory. Threads that share a copy each make all of it. That is slow and right, so a
schedule that computes something else here is wrong on a GPU too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["run_serial", "serial"]

_SERIAL, _THREAD = 0, 4  # kinds of loops in TVM's JSON
_NONE = 0  # the place of "nothing" there
_GPU_SCOPES = ("shared", "shared.dyn", "local", "warp")
TARGET = {"kind": "llvm", "num-cores": 1}


def serial(module: Any) -> Any:
    """Return a scheduled module without threads and without a GPU's memory.

    This TVM's TensorIR has no visitor in Python that changes loops within blocks; its JSON has each once.
    """
    import tvm

    graph = json.loads(tvm.ir.save_json(module))
    nodes = graph["nodes"]
    if nodes[_NONE]["type"] != "None":
        raise ValueError(
            f"TVM's JSON has {nodes[_NONE]['type']!r} where it had nothing: see benchmarks/gpu/serial.py"
        )
    for node in nodes:
        if node["type"] == "tirx.For" and node["data"]["kind"] == _THREAD:
            node["data"] |= {"kind": _SERIAL, "thread_binding": _NONE}
        elif node["type"] == "ffi.String" and node["data"] in _GPU_SCOPES:
            node["data"] = "global"
    return tvm.ir.load_json(json.dumps(graph))


def run_serial(module: Any, arrays: Sequence[Any], function: Any) -> None:
    """Run a scheduled module on arrays of the processor, which it writes in place.

    Parameters
    ----------
    arrays : sequence of numpy.ndarray
        In the order of the function's parameters; float16 and bfloat16 as their bits, uint16.
    function : PrimFunc
        The unscheduled function, which says the arrays' types.
    """
    import tvm

    built = tvm.driver.build(serial(module), target=TARGET)
    tensors = []
    for array, parameter in zip(arrays, function.params, strict=True):
        shape, dtype = [int(n) for n in parameter.shape], str(parameter.dtype)
        own = array.view(np.float16) if dtype == "float16" else array
        tensors.append(tvm.runtime.tensor(own.reshape(shape)))
    built["main"](*tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        array[...] = tensor.numpy().view(array.dtype).reshape(array.shape)
