"""Dense layers that AutoScheduler's layout rewrite can handle.

Works around TVM 0.16's `topi.nn.matmul`; remove when it names its axes. TVM calls unnamed axes i0 and i1.
Layout rewrite finds a weight's axes by name and takes a trailing digit for a split factor (compute_dag.cc).
It finds neither axis, so every candidate and the model fail to build. The branch for a rewritten weight is
wrong too. `mend` replaces the 2-D product by one with axes i, j and k. It waits for the first model, because
importing topi creates a folder in the working directory.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from functools import wraps
from typing import Any

from tvm import auto_scheduler, te
from tvm.auto_scheduler import _ffi_api


def mend_models() -> None:
    """Make ``auto_scheduler.extract_tasks`` call `mend` first; idempotent."""
    original = auto_scheduler.extract_tasks
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def extract_tasks(*args: Any, **keywords: Any) -> Any:
        mend()
        return original(*args, **keywords)

    auto_scheduler.extract_tasks = extract_tasks


def mend() -> None:
    """Replace TVM's matmul by the product with named axes, in this whole process; idempotent."""
    from tvm import topi

    module: Any = sys.modules["tvm.topi.nn.dense"]  # `topi.nn.dense` is the function
    original = module.matmul
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def matmul(
        tensor_a: Any,
        tensor_b: Any,
        bias: Any = None,
        out_dtype: Any = None,
        transpose_a: bool = False,
        transpose_b: bool = False,
        auto_scheduler_rewritten_layout: str = "",
        meta_schedule_original_shape: Any = None,
    ) -> Any:
        plain = len(tensor_b.shape) == 2 or auto_scheduler_rewritten_layout
        if len(tensor_a.shape) != 2 or not plain or meta_schedule_original_shape:
            return original(
                tensor_a, tensor_b, bias, out_dtype, transpose_a, transpose_b,
                auto_scheduler_rewritten_layout, meta_schedule_original_shape,
            )  # fmt: skip
        found = product(
            tensor_a, tensor_b, out_dtype or tensor_a.dtype, (transpose_a, transpose_b),
            auto_scheduler_rewritten_layout,
        )  # fmt: skip
        return found if bias is None else topi.add(found, bias.astype(found.dtype))

    module.matmul = matmul
    topi.nn.matmul = matmul


def product(data: Any, weight: Any, dtype: str, transposed: tuple[bool, bool], layout: str = "") -> Any:
    """Return the ``te`` tensor of data [rows, inner] times weight [inner, columns].

    Parameters
    ----------
    transposed : (bool, bool)
        Whether data and weight are transposed.
    layout : str
        The weight's layout as AutoScheduler writes it; "" for a plain one.

    Raises
    ------
    ValueError
        The inner dimensions differ.
    """
    inner, rows = data.shape if transposed[0] else reversed(data.shape)
    if layout:
        columns, inner_b = auto_scheduler.get_shape_from_rewritten_layout(layout, ["j", "k"])
        auto_scheduler.remove_index_check(weight)
    else:
        columns, inner_b = weight.shape if transposed[1] else reversed(weight.shape)
    if hasattr(inner, "value") and hasattr(inner_b, "value") and int(inner) != int(inner_b):
        raise ValueError(f"dense: the data's inner dimension is {inner}, the weight's {inner_b}")
    k = te.reduce_axis((0, inner), name="k")

    def element(i: Any, j: Any) -> Any:
        a = data[(k, i) if transposed[0] else (i, k)]
        b = weight[(j, k) if transposed[1] else (k, j)]
        return te.sum(a.astype(dtype) * b.astype(dtype), axis=k)

    found = te.compute(
        (rows, columns),
        element,
        # upstream's names: NT is Relay's dense
        name="T_matmul_" + "".join("NT"[each] for each in transposed),
        tag="dense" if transposed == (False, True) else "matmul",
        attrs={"layout_free_placeholders": [weight]},
    )
    return auto_scheduler.rewrite_compute_body(found, layout) if layout else found


def upstream_key(dag: Any) -> str | None:
    """Return the workload key of a function with TVM's own axis names; None without a dense layer.

    Logs of tasks that were extracted without `mend` hold this key.
    """
    text, found = re.subn(
        r"^T_matmul_[NT]{2}\(i, j\) .*$", _upstream_names, _ffi_api.ComputeDAGPrintDAG(dag, True), flags=re.M
    )
    if not found:
        return None
    shapes = [[int(extent) for extent in tensor.shape] for tensor in dag.tensors]
    return json.dumps([hashlib.md5(text.encode()).hexdigest(), *shapes])


def _upstream_names(line: re.Match[str]) -> str:
    return re.sub(r"\bj\b", "i1", re.sub(r"\bi\b", "i0", line.group()))
