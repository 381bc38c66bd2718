"""Read and write AutoScheduler log lines and transform steps, as Records and Actions, without TVM.

The step table follows TVM's ``transform_step.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from wmsched.base.errors import LogError, shown
from wmsched.schedules.loop_nest import LoopNest
from wmsched.schedules.types import Action, Measurement, Record, Stage

#: Longer lines are refused unread; the longest known schedules are below 20 kB.
MAX_LINE_BYTES = 1 << 20
#: No sketch has more steps; TVM would take minutes to replay them.
MAX_STEPS = 4096
MAX_SPLIT_BITS = 200  # log2 of the product of a stage's split lengths; a large convolution has about 40
_INT32 = 1 << 31


def _int(x: Any) -> bool:
    # A log has no bool. TVM reads 32-bit integers and silently wraps larger ones.
    return type(x) is int and -_INT32 <= x < _INT32


def _ints(x: Any) -> bool:
    return type(x) is list and all(_int(v) for v in x)


def _lengths(x: Any) -> bool:
    return type(x) is list and all(v is None or _int(v) for v in x)


def _text(x: Any) -> bool:
    return type(x) is str


def _maybe_int(x: Any) -> bool:
    return x is None or _int(x)


_Check = Callable[[Any], bool]

#: Checks of the fields after each step code.
STEP_FIELDS: dict[str, tuple[_Check, ...]] = {
    "AN": (_int, _int, _int),
    "FU": (_int, _ints),
    "PR": (_int, _int, _text),
    "RE": (_int, _ints),
    "SP": (_int, _int, _maybe_int, _lengths, _int),
    "FSP": (_int, _int, _int, _int),
    "FFSP": (_int, _int, _ints, _int, _int),
    "SA": (_int, _int, _int, _int),
    "CA": (_int, _int, _int),
    "CI": (_int,),
    "CR": (_int,),
    "CHR": (_int, _text, _ints),
    "CHW": (_int, _text),
    "RF": (_int, _int, _int),
}


def parse_record(line: bytes | str, *, place: str = "") -> Record:
    """Return the record in one log line.

    Parameters
    ----------
    line : bytes or str
        A JSON object with keys ``i``, ``r`` and ``v``, as TVM v0.5 and v0.6 write.
    place : str
        ``file:line`` for the error message.

    Raises
    ------
    LogError
        The line is not such an object; the message names the wrong part.

    Examples
    --------
    >>> record = parse_record(line, place="tuning.json:1")
    >>> record.measurement.seconds
    """
    if len(line) > MAX_LINE_BYTES:
        raise LogError(f"line of {len(line)} bytes, more than {MAX_LINE_BYTES}: refused unread", place=place)
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as e:
        raise LogError(f"not JSON ({e})", place=place) from None
    try:
        task, state = row["i"]
        costs, error_no, all_cost, timestamp = row["r"][:4]
        key, target = task[0], task[1]
        steps = state[1]
    except (TypeError, KeyError, ValueError, IndexError):
        raise LogError(
            'no AutoScheduler record: it needs "i": [task, state] '
            'and "r": [costs, error_no, all_cost, timestamp]',
            place=place,
        ) from None
    if not (isinstance(key, str) and isinstance(target, str) and key):
        raise LogError("workload key and target must be texts", place=place)
    if len(task) not in (2, 3, 5, 6):
        raise LogError(f"a task has 2, 3, 5 or 6 elements, this one {len(task)}", place=place)
    hardware = task[2] if len(task) > 2 else []
    if not (plain_ints(hardware) or _ints(hardware)) or len(hardware) > 32:
        raise LogError("hardware parameters must be a short list of integers", place=place)
    rewrite = task[4] if len(task) > 4 else 0
    if type(rewrite) is bool:
        rewrite = int(rewrite)
    if not (_int(rewrite) and 0 <= rewrite <= 2):
        raise LogError(f"layout_rewrite is {shown(rewrite)}, not 0, 1 or 2", place=place)
    names = task[5] if len(task) > 5 else []
    if names != [] and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise LogError("input names must be a list of texts", place=place)
    host = task[3] if len(task) > 3 and isinstance(task[3], str) else ""
    if not plain_steps(steps):
        check_steps(steps, place=place)
    if not (type(costs) is list and costs and all(type(c) in (int, float) for c in costs)):
        raise LogError("costs must be a non-empty list of numbers", place=place)
    if not _int(error_no) or type(all_cost) not in (int, float) or type(timestamp) not in (int, float):
        raise LogError("error_no, all_cost and timestamp must be numbers", place=place)
    version = row.get("v", "v0.5")
    return Record(
        workload_key=key,
        target=target,
        hardware=tuple(hardware),
        layout_rewrite=rewrite,
        steps=steps,
        measurement=Measurement(_floats(costs), error_no, _float(all_cost), _float(timestamp)),
        version=version if isinstance(version, str) else "v0.5",
        target_host=host,
        input_names=tuple(names),
    )


def _float(x: int | float) -> float:
    try:
        return float(x)
    except OverflowError:  # an integer of 400 digits is JSON
        return math.inf


def _floats(xs: list[Any]) -> tuple[float, ...]:
    try:
        return tuple(map(float, xs))
    except OverflowError:
        return tuple(_float(x) for x in xs)


def dump_record(record: Record) -> str:
    """Return the log line of ``record``; TVM and :func:`parse_record` can read it."""
    m = record.measurement
    task = [record.workload_key, record.target, list(record.hardware), record.target_host,
            record.layout_rewrite, list(record.input_names)]  # fmt: skip
    row = {
        "i": [task, [[], record.steps]],
        "r": [list(m.costs), m.error_no, m.all_cost, m.timestamp],
        "v": record.version,
    }
    return orjson.dumps(row).decode()


def check_steps(steps: Any, *, place: str = "") -> None:
    """Raise LogError unless ``steps`` is a list of steps with known codes and fields of the right types."""
    if type(steps) is not list:
        raise LogError("the state's steps must be a list", place=place)
    if len(steps) > MAX_STEPS:
        raise LogError(f"{len(steps)} steps, more than {MAX_STEPS}", place=place)
    for n, step in enumerate(steps):
        if type(step) is not list or not step or type(step[0]) is not str:
            raise LogError(f"step {n} is {shown(step)!r}, not a list that begins with its code", place=place)
        checks = STEP_FIELDS.get(step[0])
        if checks is None:
            raise LogError(f"step {n} has the unknown code {step[0][:20]!r}", place=place)
        if len(step) != len(checks) + 1:
            raise LogError(f"step {n} ({step[0]}) has {len(step) - 1} fields, not {len(checks)}", place=place)
        for k, check in enumerate(checks):
            if not check(step[k + 1]):
                value = shown(step[k + 1])
                raise LogError(f"step {n} ({step[0]}) has a bad field {k + 1}: {value}", place=place)


def check_sizes(steps: Sequence[Sequence[Any]], *, place: str = "") -> None:
    """Raise LogError if a stage's split lengths multiply to an impossible size.

    TVM's own loops are within 32 bits, but a log line may have any lengths.
    """
    bits: dict[int, float] = {}
    for n, (code, stage, *rest) in enumerate(steps):
        if code == "SP":
            _, _, lengths, _ = rest
            bits[stage] = bits.get(stage, 0.0) + sum(math.log2(x) for x in lengths if x and x > 0)
            if bits[stage] > MAX_SPLIT_BITS:
                reason = f"the lengths that stage {stage} is split by multiply to 2^{bits[stage]:.0f}"
                raise LogError(f"step {n} (SP): {reason}", place=place)


def decode_steps(steps: Sequence[Sequence[Any]], stages: Sequence[Stage] = ()) -> list[Action]:
    """Return the Actions of a candidate's steps, with all references in their texts resolved.

    Parameters
    ----------
    steps : list of steps
        As in the log.
    stages : sequence of Stage
        The workload's stages before scheduling; () if unknown, and extents then come from the steps.

    Returns
    -------
    list of Action
        One for each step. ``action.code`` and ``action.args`` give the step back.

    Raises
    ------
    LogError
        A step names a loop or a stage that no program has.
    """
    nest = LoopNest(stages)
    actions = []
    for n, s in enumerate(steps):
        try:
            text = nest.apply(s)
        except (LookupError, ArithmeticError, ValueError, TypeError) as error:
            # The fields have the right types, but no program has such a loop or stage.
            reason = f"step {n} ({s[0]}) cannot be followed: {type(error).__name__}: {error}"
            raise LogError(reason) from error
        code, *fields = s
        args = tuple([tuple(field) if isinstance(field, list) else field for field in fields])
        actions.append(Action(code, args, text))
    return actions


def encode_actions(actions: Sequence[Action]) -> list[list[Any]]:
    """Return the steps that the actions were decoded from."""
    return [[a.code, *(list(f) if isinstance(f, tuple) else f for f in a.args)] for a in actions]


# Fast path of the checks: accepts plainly valid steps and leaves all others to :func:`check_steps`.
# Nearly every line of a log is valid, and checking each field by a table costs more than parsing the JSON.
# One small function a step code returns the bitwise or of the step's integers, which is in [0, 2**31) exactly
# if all of them are.


_NOT_PLAIN = -1  # negative, so that any bitwise or with it fails the comparison


def _one(step: list[Any]) -> int:
    _, a = step
    return a if type(a) is int else _NOT_PLAIN


def _three(step: list[Any]) -> int:
    _, a, b, c = step
    return a | b | c if type(a) is type(b) is type(c) is int else _NOT_PLAIN


def _four(step: list[Any]) -> int:
    _, a, b, c, d = step
    return a | b | c | d if type(a) is type(b) is type(c) is type(d) is int else _NOT_PLAIN


def _check_list(values: Any) -> int:
    if type(values) is not list:
        return _NOT_PLAIN
    found = 0
    for value in values:
        if type(value) is not int:
            return _NOT_PLAIN
        found |= value
    return found


def _split(step: list[Any]) -> int:
    _, a, b, c, lengths, d = step
    if not (type(a) is type(b) is type(c) is type(d) is int and type(lengths) is list):
        return _NOT_PLAIN
    found = a | b | c | d
    for value in lengths:  # _check_list inline: the call would be a tenth of the whole cost
        if type(value) is not int:
            return _NOT_PLAIN
        found |= value
    return found


def _int_list(step: list[Any]) -> int:
    _, a, values = step
    return a | _check_list(values) if type(a) is int else _NOT_PLAIN


def _pragma(step: list[Any]) -> int:
    _, a, b, text = step
    return a | b if type(a) is type(b) is int and type(text) is str else _NOT_PLAIN


def _follow_fused(step: list[Any]) -> int:
    _, a, b, sources, c, d = step
    if type(a) is type(b) is type(c) is type(d) is int:
        return a | b | c | d | _check_list(sources)
    return _NOT_PLAIN


def _read(step: list[Any]) -> int:
    _, a, scope, readers = step
    return a | _check_list(readers) if type(a) is int and type(scope) is str else _NOT_PLAIN


def _write(step: list[Any]) -> int:
    _, a, scope = step
    return a if type(a) is int and type(scope) is str else _NOT_PLAIN


_PLAIN_CHECKS: dict[str, Callable[[list[Any]], int]] = {
    "AN": _three, "FU": _int_list, "PR": _pragma, "RE": _int_list, "SP": _split, "FSP": _four,
    "FFSP": _follow_fused, "SA": _four, "CA": _three, "CI": _one, "CR": _one, "CHR": _read, "CHW": _write,
    "RF": _three,
}  # fmt: skip


def plain_ints(values: Any) -> bool:
    """Return whether `values` is plainly a list of non-negative 32-bit integers."""
    return 0 <= _check_list(values) < _INT32


def plain_steps(steps: Any, most: int = 4096) -> bool:
    """Return whether `steps` are plainly valid; False asks for `check_steps`."""
    if type(steps) is not list or len(steps) > most:
        return False
    found = 0
    try:
        for step in steps:
            if type(step) is not list:
                return False
            found |= _PLAIN_CHECKS[step[0]](step)
    except (LookupError, ValueError, TypeError):  # unknown code, wrong number of fields
        return False
    return 0 <= found < _INT32
