"""MetaSchedule's candidates as steps: the trace of a schedule as plain JSON, quickly (needs its TVM)."""

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

MAX_KNOWN = 50_000  # lines, some 50 MB; then a reader starts anew
_DECISION = ", decision="
_MAP, _AFTER_MAP = ", index_map=", ", pad_value="


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
    it was read with first, its decision aside; and one that differs in the numbers of its variables only
    stands for the same with these. A layout's index map is nearly as new as a decision; TVM is asked for one
    where not even its like is known (`IndexMaps`). Steps share instructions: they are not to be changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}  # by line without its decision
        self._forms: dict[str, _Form] = {}  # by the same with its variables numbered from 0
        self._maps = IndexMaps(_map_json)

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
        rows: list[list[Any]] = []
        try:
            for place, line in enumerate(told):
                told_of, mark, decision = line.partition(_DECISION)
                row = self._known.get(told_of)  # of a line with an index map there is none
                if row is None and _MAP in told_of:
                    row = self._mapped(told_of, schedule.trace.insts[place].inputs)
                elif row is None:
                    row = self._renamed(told_of)
                rows.append([*row, orjson.loads(decision[:-1])] if mark else row)
        except (KeyError, orjson.JSONDecodeError):
            return self._from_json(schedule, told)
        return grouped(rows)

    def _from_json(self, schedule: Any, told: Sequence[str]) -> Steps:
        """The steps as TVM's JSON has them; the lines are learnt."""
        steps = steps_of_schedule(schedule)
        rows = [row for step in steps for row in step[1]]
        if len(rows) == len(told):  # no instruction is told in two lines
            for line, row in zip(told, rows):
                told_of, mark, _ = line.partition(_DECISION)
                if len(row) == 4 + bool(mark):
                    self._learn(told_of, row[:4])
        return steps

    def _learn(self, line: str, row: list[Any]) -> None:
        line, _ = _parted(line)
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
            self._forms.clear()
        self._known[line] = row
        form, names = _numbered(line)
        places = {name: place for place, name in enumerate(names)}
        read, made = _places(row[1], places), _places(row[3], places)
        if read is not None and made is not None:
            self._forms[form] = (row[0], read, row[2], made)

    def _mapped(self, line: str, inputs: Any) -> list[Any]:
        """As `_row`, for a line with an index map among the instruction's inputs."""
        rest, text = _parted(line)
        kind, read, attributes, made = self._row(rest)
        given = inputs[:]
        if len(given) != len(read):
            raise KeyError(line)
        told = [self._maps(text, x) if isinstance(x, IndexMap) else r for x, r in zip(given, read)]
        return [kind, told, attributes, made]

    def _row(self, line: str) -> list[Any]:
        """The instruction of a line that is known, or whose like is; KeyError where there is none."""
        return self._known.get(line) or self._renamed(line)

    def _renamed(self, line: str) -> list[Any]:
        """The instruction of a line whose like is known; KeyError where there is none."""
        form, names = _numbered(line)
        kind, read, attributes, made = self._forms[form]
        row = [kind, _named(read, names), attributes, _named(made, names)]
        if len(self._known) <= MAX_KNOWN:
            self._known[line] = row
        return row


_Form = tuple[Any, Any, Any, Any]  # an instruction with a `_Place` where a variable stands
_VARIABLE = re.compile(r'"(?:[^"\\]|\\.)*"|\b[blv]\d+\b')
_NAME = re.compile(r"[blv]\d+")


class _Place(int):
    """Which of a line's variables, in the order of their first mention."""


def _parted(line: str) -> tuple[str, str]:
    """The line without its index map, and the map; the whole line and "" where there is none."""
    before, mark, after = line.partition(_MAP)
    if not mark:
        return line, ""
    end = after.rfind(_AFTER_MAP)
    return (line, after) if end < 0 else (before + mark + after[end:], after[:end])


def _numbered(line: str) -> tuple[str, list[str]]:
    """The line with its variables numbered in the order of their first mention, and their names."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found.group()
        return name if name[0] == '"' else f"{name[0]}\0{names.setdefault(name, len(names))}"

    return _VARIABLE.sub(number, line), list(names)


def _places(value: Any, places: Mapping[str, int]) -> Any:
    """Inputs or outputs with a `_Place` for each variable; None if one of them is not in the line."""
    if isinstance(value, list):
        parts = [_places(part, places) for part in value]
        return None if any(part is None and had is not None for part, had in zip(parts, value)) else parts
    if isinstance(value, str) and _NAME.fullmatch(value):
        return _Place(places[value]) if value in places else None
    return value


def _named(value: Any, names: Sequence[str]) -> Any:
    if type(value) is _Place:
        return names[value]
    return [_named(part, names) for part in value] if type(value) is list else value


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


def described(infos: Any) -> list[Any]:
    """`ArgInfo`s, as a record of a database holds them: "TENSOR", type and shape of each."""
    return [plain(info.as_json()) for info in infos]


def _same(value: Any) -> Any:
    return value


def _listed(array: Any) -> list[Any]:
    # A slice is one call of TVM's and one for each element; going through the array takes three for each.
    return [value if type(value) in _OWN else plain(value) for value in array[:]]


def _map_json(value: Any) -> str:
    return str(save_json(value))  # TVM's text is a subclass, which orjson refuses


_OWN = frozenset((str, int, float))
_PLAIN: dict[type, Callable[[Any], Any]] = {
    tvm_ffi.core.String: str,
    str: _same,
    int: _same,
    bool: int,  # a database writes 1 and 0: a candidate has to read the same now and when it is a record
    float: _same,
    IntImm: lambda value: value.value,
    FloatImm: lambda value: value.value,
    IndexMap: _map_json,
    tvm_ffi.Array: _listed,
}


# The JSON of TVM's index maps, written from their text where their like has been read before.
