"""The quick look at a record's steps: passes what is plainly right, leaves everything else to the codec.

Nearly every line of a log is right, and checking each field by a table costs more than reading its JSON.
Here one small function for each step code looks at its fields and returns the bitwise or of its integers:
that is below 2**31 just when none is negative or too large. What does not pass is looked at again by
:func:`wmsched.codecs.ansor.check_steps`, which alone decides and words the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_INT32 = 1 << 31
_NO = -1  # not plainly right; negative, so that any sum with it fails the comparison


def _one(step: list[Any]) -> int:
    _, a = step
    return a if type(a) is int else _NO


def _three(step: list[Any]) -> int:
    _, a, b, c = step
    return a | b | c if type(a) is type(b) is type(c) is int else _NO


def _four(step: list[Any]) -> int:
    _, a, b, c, d = step
    return a | b | c | d if type(a) is type(b) is type(c) is type(d) is int else _NO


def _listed(values: Any) -> int:
    if type(values) is not list:
        return _NO
    found = 0
    for value in values:
        if type(value) is not int:
            return _NO
        found |= value
    return found


def _split(step: list[Any]) -> int:
    _, a, b, c, lengths, d = step
    if not (type(a) is type(b) is type(c) is type(d) is int and type(lengths) is list):
        return _NO
    found = a | b | c | d
    for value in lengths:  # as in _listed: the call would be a tenth of the whole cost
        if type(value) is not int:
            return _NO
        found |= value
    return found


def _int_list(step: list[Any]) -> int:
    _, a, values = step
    return a | _listed(values) if type(a) is int else _NO


def _pragma(step: list[Any]) -> int:
    _, a, b, text = step
    return a | b if type(a) is type(b) is int and type(text) is str else _NO


def _follow_fused(step: list[Any]) -> int:
    _, a, b, sources, c, d = step
    if type(a) is type(b) is type(c) is type(d) is int:
        return a | b | c | d | _listed(sources)
    return _NO


def _read(step: list[Any]) -> int:
    _, a, scope, readers = step
    return a | _listed(readers) if type(a) is int and type(scope) is str else _NO


def _write(step: list[Any]) -> int:
    _, a, scope = step
    return a if type(a) is int and type(scope) is str else _NO


_LOOK: dict[str, Callable[[list[Any]], int]] = {
    "AN": _three, "FU": _int_list, "PR": _pragma, "RE": _int_list, "SP": _split, "FSP": _four,
    "FFSP": _follow_fused, "SA": _four, "CA": _three, "CI": _one, "CR": _one, "CHR": _read, "CHW": _write,
    "RF": _three,
}  # fmt: skip


def plain_ints(values: Any) -> bool:
    """Whether `values` is plainly a list of 32-bit integers, none negative."""
    return 0 <= _listed(values) < _INT32


def plain_steps(steps: Any, most: int = 4096) -> bool:
    """Whether `steps` is a list of steps plainly right; False says only that a closer look is due."""
    if type(steps) is not list or len(steps) > most:
        return False
    found = 0
    try:
        for step in steps:
            if type(step) is not list:
                return False
            found |= _LOOK[step[0]](step)
    except (LookupError, ValueError, TypeError):  # no such code, another number of fields, a code of no text
        return False
    return 0 <= found < _INT32
