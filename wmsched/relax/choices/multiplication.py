"""Code of a block's sums, LLVM's: multiply-adds in registers, and what follows before they are stored."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm.script.ir_builder import tirx as T

from wmsched.relax.choices.epilogue import COLUMN, NUMBER, TENSOR, Ending
from wmsched.relax.int8.finish import kind, pieces, span

__all__ = ["all_columns", "emit_call", "multiplication", "of_columns", "packed_lines"]

LINE = 16  # float32 in a line of a cache
AT = "getelementptr inbounds float, ptr"
ARITHMETIC = {
    "relax.add": "fadd",
    "relax.subtract": "fsub",
    "relax.multiply": "fmul",
    "relax.divide": "fdiv",
}


def emit_call(made: tuple[str, str], *places: Any) -> None:
    """Emit a call of a function of `multiplication` with the addresses of buffers' elements."""
    name, code = made
    with T.attr(T.int32(0), "pragma_import_llvm", code):
        T.evaluate(T.call_extern("void", name, *map(T.address_of, places)))


def of_columns(part: Any, columns: int, width: int, emit: Callable[[Any, int], None]) -> None:
    """Emit what is done with a block of columns, whose number is known at run time."""
    parts, rest = divmod(columns, width)
    if not rest:
        emit(part, width)
    elif not parts:
        emit(part, rest)
    else:
        with T.If(part < parts):
            with T.Then():
                emit(part, width)
            with T.Else():
                emit(part, rest)


def all_columns(columns: int, width: int, emit: Callable[[Any, int], None]) -> None:
    """Emit a loop over blocks of columns, and the narrower last one."""
    parts, rest = divmod(columns, width)
    if parts:
        with T.serial(0, parts) as part:
            emit(part, width)
    if rest:
        emit(T.int32(parts), rest)


def packed_lines(
    packed: Any,
    begin: Any,
    given: Any,
    source: Callable[[Any, int], Any],
    depth: int,
    columns: int,
    lanes: int,
) -> None:
    """Emit the packing of a block of columns, line after line, with zeros up to whole vectors.

    Parameters
    ----------
    begin
        Index of the block's first number in `packed`.
    source : callable (line, column)
        Index in `given`.
    """
    wide = -(-columns // lanes) * lanes
    with T.serial(0, depth) as step:
        if wide > columns:
            zero = T.broadcast(T.float32(0), lanes)
            T.buffer_store(packed, zero, [span(begin + step * wide + wide - lanes, lanes)])
        for offset, own in pieces(columns, lanes):
            value = given.vload([source(step, offset)], kind("float32", own))
            T.buffer_store(packed, value, [span(begin + step * wide + offset, own)])


def multiplication(
    rows: int,
    vectors: int,
    lanes: int,
    depth: int,
    *,
    row: int = 0,
    line: int = 0,
    ahead: int = 0,
    ends: Sequence[Ending] = (),
) -> tuple[str, str]:
    """Return the name and code of the function (data, weights, sums, [next], [operands]) of a block's sums.

    It is a function of its own, because LLVM keeps the constants of a costly epilogue in registers otherwise,
    and sums in memory. Blocks of one kind share it in a library.

    Parameters
    ----------
    depth : int
        Products in a sum.
    row, line : int
        Numbers from a row of the data to the next, and of the sums; by default they lie side by side.
    ahead : int
        Numbers from one address to the next that are fetched meanwhile, one in each step, from the argument
        `next` on; 0 fetches nothing and has no such argument.
    ends : sequence of Ending
        What is done with the sums before they are stored. An operand that is a number of each column, or a
        tensor with lines as of the sums, is one more argument.
    """
    row, line, vector = row or depth, line or vectors * lanes, f"<{lanes} x float>"
    places = [(i, j) for i in range(rows) for j in range(vectors)]
    body = [
        "entry:",
        "  br label %step",
        "step:",
        "  %k = phi i64 [ 0, %entry ], [ %next, %step ]",
        *(f"  %s{i}_{j} = phi {vector} [ zeroinitializer, %entry ], [ %n{i}_{j}, %step ]" for i, j in places),
        f"  %column = mul i64 %k, {vectors * lanes}",
        f"  %row = {AT} %data, i64 %k",
        f"  %line = {AT} %weights, i64 %column",
    ]
    for j in range(vectors):
        body += [f"  %wp{j} = {AT} %line, i64 {j * lanes}", f"  %w{j} = load {vector}, ptr %wp{j}, align 4"]
    if ahead:
        body.append(f"  %far = mul i64 %k, {ahead}")
    for j in range(0, ahead, LINE):
        body += [
            f"  %at{j} = add i64 %far, {j}",
            f"  %np{j} = {AT} %ahead, i64 %at{j}",
            f"  call void @llvm.prefetch.p0(ptr %np{j}, i32 0, i32 2, i32 1)",
        ]
    for i in range(rows):
        body += [
            f"  %ap{i} = {AT} %row, i64 {i * row}",
            f"  %a{i} = load float, ptr %ap{i}, align 4",
            *_splat(f"all{i}", f"float %a{i}", lanes),
        ]
        for j in range(vectors):
            body += [
                f"  %m{i}_{j} = fmul contract {vector} %all{i}, %w{j}",
                f"  %n{i}_{j} = fadd contract {vector} %s{i}_{j}, %m{i}_{j}",
            ]
    body += [
        "  %next = add i64 %k, 1",
        f"  %more = icmp ult i64 %next, {depth}",
        "  br i1 %more, label %step, label %end",
        "end:",
    ]
    for k, end in enumerate(ends):
        if end.kind == NUMBER:
            body += _splat(f"c{k}", f"float {_hexadecimal(end.which)}", lanes)
        elif end.kind == COLUMN:
            for j in range(vectors):
                body += [
                    f"  %bp{k}_{j} = {AT} %o{k}, i64 {j * lanes}",
                    f"  %b{k}_{j} = load {vector}, ptr %bp{k}_{j}, align 4",
                ]
    for i, j in places:
        place, value = i * line + j * lanes, f"%n{i}_{j}"
        for k, end in enumerate(ends):
            other, result = (
                {NUMBER: f"%c{k}", COLUMN: f"%b{k}_{j}"}.get(end.kind, f"%t{k}_{i}_{j}"),
                f"e{k}_{i}_{j}",
            )
            if end.kind == TENSOR:
                body += [
                    f"  %tp{k}_{i}_{j} = {AT} %o{k}, i64 {place}",
                    f"  {other} = load {vector}, ptr %tp{k}_{i}_{j}, align 4",
                ]
            body += _ended(end, value, other, result, vector, lanes)
            value = f"%{result}"
        body += [
            f"  %p{i}_{j} = {AT} %sums, i64 {place}",
            f"  store {vector} {value}, ptr %p{i}_{j}, align 4",
        ]
    more = "".join(f", ptr noalias %o{k}" for k, end in enumerate(ends) if end.kind != NUMBER)
    text = "\n".join(body)
    more = (", ptr %ahead" if ahead else "") + more
    given = f"ptr noalias %data, ptr noalias %weights, ptr noalias %sums{more}"
    name = f"wmsched_block_{rows}_{vectors}_{depth}_{hashlib.sha256((more + text).encode()).hexdigest()[:12]}"
    return name, "\n".join(
        [
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            f"define linkonce_odr void @{name}({given}) #0 {{",
            text,
            "  ret void",
            "}",
            "attributes #0 = { noinline nounwind }",
            "",
        ]
    )


def _splat(name: str, number: str, lanes: int) -> list[str]:
    vector = f"<{lanes} x float>"
    return [
        f"  %{name}_one = insertelement {vector} poison, {number}, i64 0",
        f"  %{name} = shufflevector {vector} %{name}_one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _hexadecimal(number: float) -> str:
    """Return a float32 as LLVM writes it, which is as a double."""
    return "0x" + struct.pack(">d", float(np.float32(number))).hex().upper()


def _ended(end: Ending, value: str, other: str, result: str, vector: str, lanes: int) -> list[str]:
    left, right = (other, value) if end.swapped else (value, other)
    if end.operator in ARITHMETIC:
        return [f"  %{result} = {ARITHMETIC[end.operator]} {vector} {left}, {right}"]
    compared = "ogt" if end.operator == "relax.maximum" else "olt"  # the right one where one is NaN, as TVM's
    return [
        f"  %{result}_is = fcmp {compared} {vector} {left}, {right}",
        f"  %{result} = select <{lanes} x i1> %{result}_is, {vector} {left}, {vector} {right}",
    ]
