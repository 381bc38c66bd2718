"""MetaSchedule traces <-> steps and Actions, without TVM.

A trace's JSON is ``[instructions, decisions]``: an instruction is ``[kind, inputs, attrs, outputs]``, and a
decision ``[instruction number, value]``. Inputs and outputs name random variables (``b0`` a block, ``l3`` a
loop, ``v7`` a number) that earlier instructions gave out.

Half of the instructions of a trace look something up or draw a number and leave the program as it is. Here a
step is one that changes the program together with those before it that only prepare it::

    ["Split", [["SamplePerfectTile", ["l2"], [4, 64], ["v5", ...], [8, 8, 2, 1]],
               ["Split", ["l2", "v5", ...], [true, false], ["l9", ...]]]]

An instruction with a decision has it as its fifth field. So a trace of 36 instructions is a schedule of some
twenty actions, one text each, and nothing of it is lost: `trace_of` gives the trace back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmsched.base.errors import LogError, shown
from wmsched.schedules.trace_nest import TraceNest
from wmsched.schedules.types import Action, Stage

#: More instructions than this come from no schedule rule; the longest stock traces have some two hundred.
MAX_INSTRUCTIONS = 8192
#: Kinds that leave the program as it is. Any other, known here or not, is a step of its own.
PURE = frozenset(
    (
        "GetSBlock", "GetBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers",
        "GetOutputBlocks", "SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile",
        "SampleComputeLocation", "EnterPostproc",
    )
)  # fmt: skip

#: How the key of a workload begins whose schedules are traces (`metaschedule.workload.workload_of`).
KEY_PREFIX = '["tir",'

Steps = list[list[Any]]


def is_trace_key(key: str) -> bool:
    """Whether a workload's key is of one whose schedules are traces."""
    return key.startswith(KEY_PREFIX)


def is_trace(steps: Sequence[Any]) -> bool:
    """Whether steps are those of a trace rather than of AutoScheduler; no steps are neither."""
    return bool(steps) and len(steps[0]) == 2 and isinstance(steps[0][1], (list, tuple))


def steps_of(trace: Any, *, place: str = "") -> Steps:
    """A trace's JSON to steps.

    Parameters
    ----------
    trace : [instructions, decisions]
        As ``trace.as_json()`` gives it, or as it stands in a record of a database.
    place : str
        ``file:line`` for the error message.

    Raises
    ------
    LogError
        It is no such JSON, or a decision is of no instruction or of one that has another already.
    """
    if not isinstance(trace, (list, tuple)) or len(trace) != 2:
        raise LogError("a trace is a pair of instructions and decisions", place=place)
    instructions, decisions = trace
    if not isinstance(instructions, (list, tuple)) or not isinstance(decisions, (list, tuple)):
        raise LogError("a trace's instructions and decisions must be lists", place=place)
    told: dict[int, Any] = {}
    for entry in decisions:
        ok = isinstance(entry, (list, tuple)) and len(entry) == 2 and type(entry[0]) is int
        if not ok or entry[0] in told or not 0 <= entry[0] < len(instructions):
            raise LogError(f"no decision of one of the instructions: {shown(entry)}", place=place)
        told[entry[0]] = entry[1]
    rows: list[list[Any]] = []
    for number, instruction in enumerate(instructions):
        _check_instruction(instruction, number, decided=False, place=place)
        rows.append([*instruction, told[number]] if number in told else list(instruction))
    steps = grouped(rows)
    check_steps(steps, place=place)
    return steps


def grouped(rows: Sequence[list[Any]]) -> Steps:
    """Instructions, decided ones with their decisions, to steps."""
    steps: Steps = []
    group: list[list[Any]] = []
    for row in rows:
        group.append(row)
        if row[0] not in PURE:
            steps.append([row[0], group])
            group = []
    if group:  # lookups at the end, or nothing but lookups
        steps.append([group[-1][0], group])
    return steps


def trace_of(steps: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Steps back to the trace's JSON; the inverse of `steps_of`, of any prefix of the steps too."""
    instructions: list[Any] = []
    decisions: list[Any] = []
    for step in steps:
        for row in step[1]:
            if len(row) == 5:
                decisions.append([len(instructions), row[4]])
            instructions.append(list(row[:4]))
    return [instructions, decisions]


def check_steps(steps: Any, *, place: str = "") -> None:
    """Raise LogError unless `steps` are what `steps_of` makes; kinds of instructions may be any."""
    if type(steps) is not list:
        raise LogError("the steps must be a list", place=place)
    number = 0
    for n, step in enumerate(steps):
        fine = type(step) is list and len(step) == 2 and type(step[0]) is str and type(step[1]) is list
        if not fine or not step[1]:
            raise LogError(f"step {n} is {shown(step)!r}, not a code and its instructions", place=place)
        for row in step[1]:
            _check_instruction(row, number, decided=True, place=place)
            number += 1
        if step[1][-1][0] != step[0] or any(row[0] not in PURE for row in step[1][:-1]):
            raise LogError(
                f"step {n} ({step[0][:40]}) holds other instructions than its code says", place=place
            )
    if number > MAX_INSTRUCTIONS:
        raise LogError(f"{number} instructions, more than {MAX_INSTRUCTIONS}", place=place)


def _check_instruction(row: Any, number: int, *, decided: bool, place: str) -> None:
    lengths = (4, 5) if decided else (4,)
    if not (
        isinstance(row, (list, tuple))
        and len(row) in lengths
        and type(row[0]) is str
        and all(isinstance(part, (list, tuple)) for part in row[1:4])
        and all(type(name) is str for name in row[3])
    ):
        raise LogError(
            f"instruction {number} is {shown(row)!r}, not [kind, inputs, attrs, outputs]", place=place
        )


def decode_steps(steps: Sequence[Sequence[Any]], stages: Sequence[Stage] = ()) -> list[Action]:
    """Steps of one candidate to Actions whose texts have every reference resolved.

    Parameters
    ----------
    steps : what `steps_of` made
    stages : the workload's stages before scheduling; () when unknown, then extents come from decisions alone

    Returns
    -------
    list of Action, one a step, in order. ``action.code`` and ``action.args`` give the step back.
    """
    nest = TraceNest(stages)
    return [Action(step[0], tuple(freeze(row) for row in step[1]), nest.apply(step)) for step in steps]


def encode_actions(actions: Sequence[Action]) -> Steps:
    """Actions back to the steps they were decoded from."""
    return [[action.code, [thaw(row) for row in action.args]] for action in actions]


class _Map(tuple):
    """A JSON object's items: told apart from a list, and hashable, which a dict is not."""


def freeze(value: Any) -> Any:
    """JSON with tuples for lists."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(part) for part in value)
    if isinstance(value, dict):
        return _Map((key, freeze(part)) for key, part in value.items())
    return value


def thaw(value: Any) -> Any:
    """The inverse of `freeze`."""
    if isinstance(value, _Map):
        return {key: thaw(part) for key, part in value}
    if isinstance(value, tuple):
        return [thaw(part) for part in value]
    return value
