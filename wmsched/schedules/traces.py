"""Read and write MetaSchedule traces, as steps and Actions, without TVM.

A trace's JSON is ``[instructions, decisions]``. An instruction is ``[kind, inputs, attrs, outputs]``, and a
decision ``[instruction number, value]``. Inputs and outputs name random variables (``b0`` a block, ``l3`` a
loop, ``v7`` a number) that earlier instructions define.

Half of a trace's instructions look something up or sample a number, and leave the program unchanged. A step
here is one instruction that changes the program, with the lookups and samples in front of it::

    ["Split", [["SamplePerfectTile", ["l2"], [4, 64], ["v5", ...], [8, 8, 2, 1]],
               ["Split", ["l2", "v5", ...], [true, false], ["l9", ...]]]]

A decision is the fifth field of its instruction. A trace of 36 instructions becomes about twenty actions with
one text each. `trace_of` restores the trace without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmsched.base.errors import LogError, shown
from wmsched.schedules.grammar import ABSENT, Instruction
from wmsched.schedules.trace_nest import TraceNest
from wmsched.schedules.types import Action, Stage

#: No schedule rule makes more instructions; the longest stock traces have about two hundred.
MAX_INSTRUCTIONS = 8192
#: Instructions that leave the program unchanged. Each other one, known here or not, makes a step.
PURE = frozenset(
    (
        "GetSBlock", "GetBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers",
        "GetOutputBlocks", "SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile",
        "SampleComputeLocation", "EnterPostproc",
    )
)  # fmt: skip

#: Prefix of the keys of workloads whose schedules are traces (`metaschedule.workload.workload_of`).
KEY_PREFIX = '["tir",'

Steps = list[list[Any]]


def is_trace_key(key: str) -> bool:
    """Return whether a workload's schedules are traces, by its key."""
    return key.startswith(KEY_PREFIX)


def is_trace(steps: Sequence[Any]) -> bool:
    """Return whether steps are of a trace rather than of AutoScheduler; False for no steps."""
    return bool(steps) and len(steps[0]) == 2 and isinstance(steps[0][1], (list, tuple))


def steps_of(trace: Any, *, place: str = "") -> Steps:
    """Return the steps of a trace's JSON.

    Parameters
    ----------
    trace : [instructions, decisions]
        From ``trace.as_json()``, or from a record of a database.
    place : str
        ``file:line`` for the error message.

    Raises
    ------
    LogError
        The JSON is no trace, or a decision belongs to no instruction or to one that has another.
    """
    if not isinstance(trace, (list, tuple)) or len(trace) != 2:
        raise LogError("a trace is a pair of instructions and decisions", place=place)
    instructions, decisions = trace
    if not isinstance(instructions, (list, tuple)) or not isinstance(decisions, (list, tuple)):
        raise LogError("a trace's instructions and decisions must be lists", place=place)
    decided_values: dict[int, Any] = {}
    for entry in decisions:
        ok = isinstance(entry, (list, tuple)) and len(entry) == 2 and type(entry[0]) is int
        if not ok or entry[0] in decided_values or not 0 <= entry[0] < len(instructions):
            raise LogError(f"no decision of one of the instructions: {shown(entry)}", place=place)
        decided_values[entry[0]] = entry[1]
    rows: list[list[Any]] = []
    for number, instruction in enumerate(instructions):
        _check_instruction(instruction, number, decided=False, place=place)
        rows.append([*instruction, decided_values[number]] if number in decided_values else list(instruction))
    steps = grouped(rows)
    check_steps(steps, place=place)
    return steps


def grouped(rows: Sequence[list[Any]]) -> Steps:
    """Return the steps of instructions that have their decisions as fifth fields."""
    steps: Steps = []
    group: list[list[Any]] = []
    for row in rows:
        group.append(row)
        if row[0] not in PURE:
            steps.append([row[0], group])
            group = []
    if group:  # trailing lookups
        steps.append([group[-1][0], group])
    return steps


def trace_of(steps: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the trace's JSON of steps, or of any prefix of steps; inverse of `steps_of`."""
    instructions: list[Any] = []
    decisions: list[Any] = []
    for _, rows in steps:
        for row in rows:
            *instruction, decision = Instruction(*row)
            if decision is not ABSENT:
                decisions.append([len(instructions), decision])
            instructions.append(instruction)
    return [instructions, decisions]


def check_steps(steps: Any, *, place: str = "") -> None:
    """Raise LogError unless `steps` have the form of `steps_of`; any kind of instruction may occur."""
    if type(steps) is not list:
        raise LogError("the steps must be a list", place=place)
    number = 0
    for n, step in enumerate(steps):
        if type(step) is not list or len(step) != 2:
            raise LogError(f"step {n} is {shown(step)!r}, not a code and its instructions", place=place)
        code, rows = step
        if type(code) is not str or type(rows) is not list or not rows:
            raise LogError(f"step {n} is {shown(step)!r}, not a code and its instructions", place=place)
        for row in rows:
            _check_instruction(row, number, decided=True, place=place)
            number += 1
        if rows[-1][0] != code or any(row[0] not in PURE for row in rows[:-1]):
            raise LogError(f"step {n} ({code[:40]}) holds other instructions than its code says", place=place)
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
    """Return the Actions of a candidate's steps, with all references in their texts resolved.

    Parameters
    ----------
    steps : list of steps
        From `steps_of`.
    stages : sequence of Stage
        The workload's stages before scheduling; () if unknown, and extents then come from decisions.

    Returns
    -------
    list of Action
        One for each step. ``action.code`` and ``action.args`` give the step back.
    """
    nest = TraceNest(stages)
    return [Action(code, tuple(map(freeze, rows)), nest.apply((code, rows))) for code, rows in steps]


def encode_actions(actions: Sequence[Action]) -> Steps:
    """Return the steps that the actions were decoded from."""
    return [[action.code, [thaw(row) for row in action.args]] for action in actions]


class _Map(tuple):
    """Items of a JSON object: hashable, and distinct from a list."""


def freeze(value: Any) -> Any:
    """Return JSON with tuples for lists."""
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
