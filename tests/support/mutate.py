"""Real log lines, damaged: what the fuzz tests and the optional atheris target feed to the reader."""

from __future__ import annotations

import json
import random
import re

NUMBER = re.compile(rb"-?\d+(\.\d+)?(e-?\d+)?")
TEXT = re.compile(rb'"[^"]{1,60}"')
NUMBERS = [
    b"-1", b"0", b"2147483647", b"0x10", b"2147483648", b"-2147483649", b"9" * 400, b"1e999",
    b"-0.0", b"1e-320", b"NaN", b"null", b"true", b"[]", b'"7"', b"18446744073709551616", b"1.5",
]  # fmt: skip
TEXTS = [
    b'"../../../../etc/passwd"', b'"/dev/null"', b'"\\u0000"', b'"\\ud800"', b'"\xff\xfe"', b'""',
    b'"' + b"A" * 5000 + b'"', b"[]", b"{}", b"null", b'"\\u202e"', b'"AN"', b'"FFSP"', b'"RF"', b'"CHR"',
]  # fmt: skip
BYTES = [b"[" * 2000, b"]" * 9, b'{"i":', b"\x00", b"\r", b",", b'"', b"\\", b" ", b"#"]


def seeds() -> list[bytes]:
    """A few lines of every kind of step, good before they are damaged."""
    splits = [["SP", 2, 0, 64, [4, 2], 1], ["SP", 2, 3, 32, [8], 1], ["RE", 2, [0, 3, 1, 2, 4]]]
    kinds = [
        [*splits, ["FU", 2, [0, 1]], ["AN", 2, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$64"]],
        [["CHW", 2, "local"], *splits, ["FSP", 3, 0, 1, 2], ["CA", 2, 3, 1], ["CI", 1], ["CR", 3]],
        [["RF", 2, 2, 2], ["CHR", 1, "shared", [2]], ["FFSP", 2, 0, [0, 1], 1, 1], ["SA", 2, 0, 1, 2]],
        [["SP", 1, 0, None, [None, 4], 0], ["AN", 1, 0, 6]],
    ]
    lines = []
    for number, steps in enumerate(kinds):
        key = json.dumps([f"{number:032x}", [64, 32], [32, 64]])
        task = [key, "llvm -mcpu=znver4", [2, 64, 64, 0, 0, 0, 0, 0], "", 2, []]
        lines.append(json.dumps({"i": [task, [[], steps]], "r": [[1.5e-3], 0, 0.4, 1700000000], "v": "v0.6"}))
    return [line.encode() for line in lines]


def mutate(line: bytes, other: bytes, chance: random.Random) -> bytes:
    """One to three kinds of damage to `line`; `other` is a second line to splice in. May hold no newline."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        line = _DAMAGE[chance.randrange(len(_DAMAGE))](line, other, chance)
    return line.replace(b"\n", b"?")


def _at(line: bytes, chance: random.Random) -> int:
    return chance.randrange(len(line) + 1)


def _flip(line: bytes, other: bytes, chance: random.Random) -> bytes:
    place = _at(line, chance)
    return line[:place] + bytes([chance.randrange(256)]) + line[place + 1 :]


def _cut(line: bytes, other: bytes, chance: random.Random) -> bytes:
    return line[: _at(line, chance)]


def _drop(line: bytes, other: bytes, chance: random.Random) -> bytes:
    first, last = sorted((_at(line, chance), _at(line, chance)))
    return line[:first] + line[min(last, first + 40) :]


def _double(line: bytes, other: bytes, chance: random.Random) -> bytes:
    first, last = sorted((_at(line, chance), _at(line, chance)))
    return line[:last] + line[first:]


def _splice(line: bytes, other: bytes, chance: random.Random) -> bytes:
    return line[: _at(line, chance)] + other[_at(other, chance) :]


def _insert(line: bytes, other: bytes, chance: random.Random) -> bytes:
    place = _at(line, chance)
    return line[:place] + chance.choice(BYTES) + line[place:]


def _replace(pattern: re.Pattern[bytes], values: list[bytes]):
    def change(line: bytes, other: bytes, chance: random.Random) -> bytes:
        found = [match.span() for match in pattern.finditer(line)]
        if not found:
            return line
        first, last = chance.choice(found)
        return line[:first] + chance.choice(values) + line[last:]

    return change


def _near(line: bytes, other: bytes, chance: random.Random) -> bytes:
    """A number a little off: still a record, perhaps of no possible program."""
    found = [match.span() for match in re.finditer(rb"\b\d{1,3}\b", line)]
    if not found:
        return line
    first, last = chance.choice(found)
    return line[:first] + b"%d" % max(0, int(line[first:last]) + chance.randint(-3, 40)) + line[last:]


_DAMAGE = [
    _flip, _cut, _drop, _double, _splice, _insert, _replace(NUMBER, NUMBERS), _replace(TEXT, TEXTS), _near,
    _near,
]  # fmt: skip
