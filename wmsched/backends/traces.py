"""MetaSchedule's candidates as steps: the trace of a schedule as plain JSON, quickly (needs its TVM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm.ir import save_json
from tvm.s_tir.schedule import _ffi_api
from tvm.tirx import FloatImm, IndexMap, IntImm

from wmsched.codecs.trace import Steps, steps_of


def trace_json(trace: Any) -> Any:
    """``trace.as_json()`` as a record of a database holds it: nothing but lists, texts, numbers and null."""
    return plain(_ffi_api.TraceAsJSON(trace, False))


def steps_of_schedule(schedule: Any) -> Steps:
    """The steps of a `tvm.s_tir.Schedule`.

    Raises
    ------
    ValueError
        It was made without a trace.
    LogError
        Its trace is of another form than TVM 0.27's.
    """
    if schedule.trace is None:
        raise ValueError("the schedule has no trace: it was made with enable_check, not traced")
    return steps_of(trace_json(schedule.trace))


def plain(value: Any) -> Any:
    """TVM's containers and numbers as Python's."""
    known = _PLAIN.get(type(value))
    if known is not None:
        return known(value)
    if value is None:
        return None
    if isinstance(value, str):  # TVM's texts are subclasses, which orjson refuses
        return str(value)
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return [plain(part) for part in value]
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    return value if isinstance(value, (bool, int, float)) else str(value)


def _same(value: Any) -> Any:
    return value


_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: _same,
    int: _same,
    bool: int,  # a database writes 1 and 0: a candidate has to read the same now and when it is a record
    float: _same,
    IntImm: lambda value: value.value,
    FloatImm: lambda value: value.value,
    IndexMap: save_json,
    tvm_ffi.Array: lambda value: [plain(part) for part in value],
}
