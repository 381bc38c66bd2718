"""Steps of MetaSchedule's candidates: a schedule's trace as plain JSON, fast (needs its TVM)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import tvm_ffi
from tvm.ir import save_json
from tvm.s_tir.schedule import _ffi_api
from tvm.tirx import FloatImm, IndexMap, IntImm

from wmsched.metaschedule.index_maps import IndexMaps
from wmsched.schedules.traces import Steps, grouped, steps_of

MAX_KNOWN = 50_000  # lines, some 50 MB; then a reader clears its cache
_DECISION = ", decision="
_MAP, _AFTER_MAP = ", index_map=", ", pad_value="


def trace_json(trace: Any) -> Any:
    """Return ``trace.as_json()`` as a database record holds it: lists, texts, numbers and null only."""
    return plain(_ffi_api.TraceAsJSON(trace, False))


def steps_of_schedule(schedule: Any) -> Steps:
    """Return the steps of a `tvm.s_tir.Schedule`.

    Raises
    ------
    ValueError
        The schedule has no trace.
    LogError
        The trace does not have TVM 0.27's form.
    """
    if schedule.trace is None:
        raise ValueError("the schedule has no trace: it was made with enable_check, not traced")
    return steps_of(trace_json(schedule.trace))


class StepsReader:
    """Cached `steps_of_schedule` for a search, whose candidates share most instructions.

    >>> read = StepsReader()
    >>> steps = read(candidate.sch)

    A trace's Python text has one line an instruction and costs TVM less than its JSON, which takes a call
    for every element. The reader caches instructions by line without decision, and by form: the line with
    its variables renumbered. `IndexMaps` caches index maps. Steps share instructions: do not change them.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}  # by line without decision
        self._forms: dict[str, _Form] = {}  # by line with variables numbered from 0
        self._maps = IndexMaps(_map_json)

    def __call__(self, schedule: Any) -> Steps:
        """Return the steps of a schedule.

        Raises
        ------
        ValueError, LogError
            As `steps_of_schedule` does.
        """
        if schedule.trace is None:
            return steps_of_schedule(schedule)
        told = _ffi_api.TraceAsPython(schedule.trace, False)[:]
        rows: list[list[Any]] = []
        try:
            for place, line in enumerate(told):
                told_of, mark, decision = line.partition(_DECISION)
                row = self._known.get(told_of)  # no line with an index map is cached
                if row is None and _MAP in told_of:
                    row = self._row_with_map(told_of, schedule.trace.insts[place].inputs)
                elif row is None:
                    row = self._row_by_form(told_of)
                rows.append([*row, orjson.loads(decision[:-1])] if mark else row)
        except (KeyError, orjson.JSONDecodeError):
            return self._from_json(schedule, told)
        return grouped(rows)

    def _from_json(self, schedule: Any, told: Sequence[str]) -> Steps:
        """Return the steps from TVM's JSON; cache their lines."""
        steps = steps_of_schedule(schedule)
        rows = [row for _, group in steps for row in group]
        if len(rows) == len(told):  # one line an instruction
            for line, row in zip(told, rows):
                told_of, mark, _ = line.partition(_DECISION)
                if len(row) == 4 + bool(mark):
                    self._learn(told_of, row[:4])
        return steps

    def _learn(self, line: str, row: list[Any]) -> None:
        line, _ = _split_index_map(line)
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
            self._forms.clear()
        self._known[line] = row
        form, names = _number_variables(line)
        places = {name: place for place, name in enumerate(names)}
        kind, inputs, attributes, outputs = row
        read, made = _to_places(inputs, places), _to_places(outputs, places)
        if read is not None and made is not None:
            self._forms[form] = (kind, read, attributes, made)

    def _row_with_map(self, line: str, inputs: Any) -> list[Any]:
        """Return the instruction of a line that has an index map among its inputs."""
        rest, text = _split_index_map(line)
        kind, read, attributes, made = self._row(rest)
        given = inputs[:]
        if len(given) != len(read):
            raise KeyError(line)
        told = [self._maps(text, x) if isinstance(x, IndexMap) else r for x, r in zip(given, read)]
        return [kind, told, attributes, made]

    def _row(self, line: str) -> list[Any]:
        """Return the cached instruction of a line or of its form; raise KeyError if there is none."""
        return self._known.get(line) or self._row_by_form(line)

    def _row_by_form(self, line: str) -> list[Any]:
        """Return the cached instruction of a line's form; raise KeyError if there is none."""
        form, names = _number_variables(line)
        kind, read, attributes, made = self._forms[form]
        row = [kind, _to_names(read, names), attributes, _to_names(made, names)]
        if len(self._known) <= MAX_KNOWN:
            self._known[line] = row
        return row


_Form = tuple[Any, Any, Any, Any]  # an instruction with a `_Place` for each variable
_VARIABLE = re.compile(r'"(?:[^"\\]|\\.)*"|\b[blv]\d+\b')
_NAME = re.compile(r"[blv]\d+")


class _Place(int):
    """Index of a variable in its line, in the order of first mention."""


def _split_index_map(line: str) -> tuple[str, str]:
    """Return the line without its index map, and the map; the line and "" if it has none."""
    before, mark, after = line.partition(_MAP)
    if not mark:
        return line, ""
    end = after.rfind(_AFTER_MAP)
    return (line, after) if end < 0 else (before + mark + after[end:], after[:end])


def _number_variables(line: str) -> tuple[str, list[str]]:
    """Return the line with its variables numbered in the order of first mention, and their names."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found.group()
        return name if name[0] == '"' else f"{name[0]}\0{names.setdefault(name, len(names))}"

    return _VARIABLE.sub(number, line), list(names)


def _to_places(value: Any, places: Mapping[str, int]) -> Any:
    """Return inputs or outputs with a `_Place` for each variable; None if the line lacks one."""
    if isinstance(value, list):
        parts = [_to_places(part, places) for part in value]
        return None if any(part is None and had is not None for part, had in zip(parts, value)) else parts
    if isinstance(value, str) and _NAME.fullmatch(value):
        return _Place(places[value]) if value in places else None
    return value


def _to_names(value: Any, names: Sequence[str]) -> Any:
    if type(value) is _Place:
        return names[value]
    return [_to_names(part, names) for part in value] if type(value) is list else value


def plain(value: Any) -> Any:
    """Convert TVM's containers and numbers to Python's."""
    known = _PLAIN.get(type(value))
    if known is not None:
        return known(value)
    if value is None:
        return None
    if isinstance(value, str):  # orjson refuses TVM's subclass of str
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, tvm_ffi.Array):
        return _to_list(value)
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    return value if isinstance(value, (bool, int, float)) else str(value)


def described(infos: Any) -> list[Any]:
    """Return `ArgInfo`s as a database record holds them: ["TENSOR", type, shape] each."""
    return [plain(info.as_json()) for info in infos]


def _identity(value: Any) -> Any:
    return value


def _to_list(array: Any) -> list[Any]:
    # A slice takes 1 TVM call and 1 an element; iterating takes 3 an element.
    return [value if type(value) in _OWN else plain(value) for value in array[:]]


def _map_json(value: Any) -> str:
    return str(save_json(value))  # orjson refuses TVM's subclass of str


_OWN = frozenset((str, int, float))
_PLAIN: dict[type, Callable[[Any], Any]] = {
    tvm_ffi.core.String: str,
    str: _identity,
    int: _identity,
    bool: int,  # a database writes 1 and 0: a candidate must equal its record
    float: _identity,
    IntImm: lambda value: value.value,
    FloatImm: lambda value: value.value,
    IndexMap: _map_json,
    tvm_ffi.Array: _to_list,
}


# The JSON of TVM's index maps, written from their text where their like has been read before.
