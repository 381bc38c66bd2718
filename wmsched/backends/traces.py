"""MetaSchedule's candidates as steps: the trace of a schedule as plain JSON, quickly (needs its TVM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import tvm_ffi
from tvm.ir import save_json
from tvm.s_tir.schedule import _ffi_api
from tvm.tirx import FloatImm, IndexMap, IntImm

from wmsched.codecs.trace import Steps, grouped, steps_of

MAX_KNOWN = 50_000  # lines, some 50 MB; then a reader starts anew
_DECISION = ", decision="


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


class StepsReader:
    """`steps_of_schedule` for the candidates of a search, most of whose instructions it has read before.

    A trace's Python text has a line for each instruction, variables and decision included, and costs TVM less
    than its JSON, whose nested lists take a call for every element. So a line stands for the instruction that
    it was read with first, its decision aside. Steps share instructions: they are not to be changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}  # by line without its decision

    def __call__(self, schedule: Any) -> Steps:
        """The steps of a schedule.

        Raises
        ------
        ValueError, LogError
            As `steps_of_schedule` does.
        """
        if schedule.trace is None:
            return steps_of_schedule(schedule)
        told = _ffi_api.TraceAsPython(schedule.trace, False)[:]
        lines = [str(line).partition(_DECISION) for line in told]
        rows: list[list[Any]] = []
        try:
            for line, mark, decision in lines:
                row = self._known[line]
                rows.append([*row, orjson.loads(decision[:-1])] if mark else row)
        except (KeyError, orjson.JSONDecodeError):
            steps = steps_of_schedule(schedule)
            rows = [row for step in steps for row in step[1]]
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            if len(rows) == len(lines):  # no instruction is told in two lines
                self._known.update(
                    (line, row[:4]) for (line, mark, _), row in zip(lines, rows) if len(row) == 4 + bool(mark)
                )
            return steps
        return grouped(rows)


def plain(value: Any) -> Any:
    """TVM's containers and numbers as Python's."""
    known = _PLAIN.get(type(value))
    if known is not None:
        return known(value)
    if value is None:
        return None
    if isinstance(value, str):  # TVM's texts are subclasses, which orjson refuses
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, tvm_ffi.Array):
        return _listed(value)
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    return value if isinstance(value, (bool, int, float)) else str(value)


def _same(value: Any) -> Any:
    return value


def _listed(array: Any) -> list[Any]:
    # A slice is one call of TVM's and one for each element; going through the array takes three for each.
    return [value if type(value) in _OWN else plain(value) for value in array[:]]


_OWN = frozenset((str, int, float))
_PLAIN: dict[type, Callable[[Any], Any]] = {
    tvm_ffi.core.String: str,
    str: _same,
    int: _same,
    bool: int,  # a database writes 1 and 0: a candidate has to read the same now and when it is a record
    float: _same,
    IntImm: lambda value: value.value,
    FloatImm: lambda value: value.value,
    IndexMap: save_json,
    tvm_ffi.Array: _listed,
}
