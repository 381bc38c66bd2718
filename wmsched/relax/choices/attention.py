"""Kernel of attention: softmax(query key^T factor + masks) value of a block of rows, whose scores stay near.

Apart, the scores of all rows are written and read five times, which takes longer than their products where
rows are many. Keys and values are packed once for the blocks of all rows. A block keeps its whole rows of
scores, so no sum is corrected later as in "FlashAttention" (Dao et al., 2022), whose memory is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.script.ir_builder import tirx as T

from wmsched.codegen.math_functions import Builder
from wmsched.features.vector_width import Registers
from wmsched.relax.attention.kernel import View
from wmsched.relax.attention.match import NAN, Found, attention_of
from wmsched.relax.attention.views import Bindings, Seen
from wmsched.relax.choices.blocks import MAX_ROWS, MAX_VECTORS, block_cycles
from wmsched.relax.choices.core import Core
from wmsched.relax.choices.multiplication import (
    all_columns,
    emit_call,
    multiplication,
    of_columns,
    packed_lines,
)
from wmsched.relax.int8.finish import kind, pieces, span
from wmsched.relax.int8.product import begin_of, count_of, kernel, named, whole

__all__ = ["Attention", "Sizes", "attention_kernel", "attention_pays", "attentions", "sizes_of"]

MIN_ROWS = 4  # with fewer, packing takes longer than what it serves
MAX_SCORE_BYTES = 1 << 20  # of a block of rows: more leave the second cache
UNROLLED = 4  # vectors of scores that are reduced at once
LINE = 16  # float32 in a line of a cache
LEAST = -3.4028234663852886e38  # of float32


@dataclass(frozen=True)
class Attention:
    """One attention.

    Parameters
    ----------
    batch, heads, rows, columns, depth, outputs : int
        Queries are [batch, heads, rows, depth], keys [batch, heads, columns, depth], values
        [batch, heads, columns, outputs].
    query, key, value, result : View
        Where they lie in the kernel's arguments, axes in that order.
    masks : tuple of View
        What is added to the scores [batch, heads, rows, columns].
    factor : float
        Of the products of queries and keys.
    zero : str
        Which rows of the result are zero, as `match.Found` has it.
    """

    batch: int
    heads: int
    rows: int
    columns: int
    depth: int
    outputs: int
    query: View
    key: View
    value: View
    result: View
    masks: tuple[View, ...] = ()
    factor: float = 1.0
    zero: str = ""

    @property
    def count(self) -> int:
        """Number of matrices."""
        return self.batch * self.heads

    @property
    def operations(self) -> float:
        """Multiplications and additions of both products."""
        return 2.0 * self.count * self.rows * self.columns * (self.depth + self.outputs)

    @property
    def words(self) -> str:
        """Say what is computed."""
        what = f"attention of {self.count} heads, {self.rows} x {self.columns}, {self.depth} channels"
        return what + ", masked" * bool(self.masks)


@dataclass(frozen=True)
class Sizes:
    """How an attention is divided: rows of a block, and vectors of columns of both products' blocks."""

    rows: int
    key_vectors: int
    value_vectors: int


def sizes_of(shape: Attention, registers: Registers) -> Sizes:
    """Return the sizes with which a core is expected to take the least time."""

    def options(rows: int, columns: int) -> range:
        most = (registers.number - 1) // (rows + 1)  # one register has a number of the rows
        return range(1, min(MAX_VECTORS, most, count_of(columns, registers.lanes)) + 1)

    def cycles(rows: int, wide: int, columns: int, depth: int) -> float:
        parts, rest = divmod(count_of(columns, registers.lanes), wide)
        line = parts * block_cycles(rows, wide) + (block_cycles(rows, rest) if rest else 0.0)
        return count_of(shape.rows, rows) * line * depth

    def total(sizes: Sizes) -> float:
        return cycles(sizes.rows, sizes.key_vectors, shape.columns, shape.depth) + cycles(
            sizes.rows, sizes.value_vectors, shape.outputs, shape.columns
        )

    found = [
        Sizes(rows, of_keys, of_values)
        for rows in range(1, min(MAX_ROWS, shape.rows) + 1)
        for of_keys in options(rows, shape.columns)
        for of_values in options(rows, shape.outputs)
    ]
    return min(found, key=total)


def attentions(given: Bindings) -> Iterator[tuple[Found, Attention]]:
    """Yield the attentions of a function that have a kernel, in order."""
    taken: set[Any] = set()  # what earlier ones no longer compute

    def is_readable(name: str, one: Seen) -> bool:
        if one.view.dtype != "float32" or one.base in taken:
            return False
        if name == "q":
            return one.view.strides[3] == 1
        weights = isinstance(one.base, tvm.ir.Constant) and len(one.view.shape) < 3  # of a layer
        return not weights and (name == "k" or one.view.strides[3] == 1)

    for variable in given.values:
        found = attention_of(given, variable, is_readable, _has_whole_rows)
        if found is None or not taken.isdisjoint(found.arguments):
            continue
        masks = [mask.view(found.scores) for mask in found.masks]
        if all(mask is not None and _has_whole_rows(mask) for mask in masks):
            taken |= found.inside
            yield found, _attention(found, tuple(mask for mask in masks if mask is not None))


def _has_whole_rows(view: View) -> bool:
    return view.dtype == "float32" and view.strides[3] == 1


def _attention(found: Found, masks: tuple[View, ...]) -> Attention:
    return Attention(
        batch=found.batch, heads=found.heads, rows=found.rows, columns=found.keys,
        depth=found.width, outputs=found.outputs,
        query=found.q.view, key=found.k.view, value=found.v.view, result=found.out,
        masks=masks, factor=found.scale, zero=found.zero,
    )  # fmt: skip


def attention_pays(shape: Attention) -> bool:
    """Return whether an attention has a kernel by the rules."""
    near = 4 * MAX_ROWS * shape.columns <= MAX_SCORE_BYTES
    return shape.rows >= MIN_ROWS and shape.columns >= MIN_ROWS and near


def attention_kernel(shape: Attention, core: Core) -> Any:
    """Return the function (query, key, value, [masks], result)."""
    views = {"query": shape.query, "key": shape.key, "value": shape.value}
    views |= {f"mask{k}": mask for k, mask in enumerate(shape.masks)}
    return kernel(
        "attention",
        {name: (view.shape, "float32") for name, view in (*views.items(), ("result", shape.result))},
        lambda flat: _Writer(shape, core.registers, flat).write(),
        shape.words,
        shape.operations,
    )


class _Writer:
    """Writer of the loops."""

    def __init__(self, shape: Attention, registers: Registers, flat: dict[str, Any]) -> None:
        self.shape, self.lanes, self.flat = shape, registers.lanes, flat
        self.sizes = sizes_of(shape, registers)
        self.turns = count_of(shape.rows, self.sizes.rows)
        # Rows whose lines lie in other sets of a cache: an odd number of lines apart.
        self.row = (count_of(shape.columns, LINE) | 1) * LINE

    def write(self) -> None:
        """Emit everything."""
        shape, sizes = self.shape, self.sizes
        keys = self._packed("keys", shape.columns, shape.depth, sizes.key_vectors, self._pack_keys)
        values = self._packed("values", shape.outputs, shape.columns, sizes.value_vectors, self._pack_values)
        with T.parallel(0, shape.count * self.turns) as task:
            which = task // self.turns
            row = begin_of(task % self.turns, sizes.rows, shape.rows)
            scores = whole(named("scores", T.alloc_buffer((sizes.rows * self.row,), "float32")))
            inverse = named("inverse", T.alloc_buffer((sizes.rows,), "float32"))
            self._score(keys, which, row, scores)
            with T.serial(0, sizes.rows) as i:
                self._normalize(scores, i, which, row + i, inverse)
            self._combine(values, which, row, scores, inverse)

    def _of(self, which: Any) -> tuple[Any, Any]:
        """Return batch and head of a matrix."""
        return (which // self.shape.heads, which % self.shape.heads) if self.shape.batch > 1 else (0, which)

    def _packed(
        self,
        name: str,
        columns: int,
        depth: int,
        vectors: int,
        pack: Callable[[Any, Any, Any, Any, int], None],
    ) -> Any:
        """Emit the packing of a matrix of each head: [block][depth][vectors][lanes], flat."""
        width = vectors * self.lanes
        matrix = count_of(columns, self.lanes) * self.lanes * depth
        packed = named(name, T.alloc_buffer((self.shape.count * matrix,), "float32"))
        with T.parallel(0, self.shape.count * count_of(columns, width)) as task:
            which, part = task // count_of(columns, width), task % count_of(columns, width)
            begin = which * matrix + part * (width * depth)
            of_columns(part, columns, width, lambda part, own: pack(packed, which, part * width, begin, own))
        return packed

    def _pack_keys(self, packed: Any, which: Any, first: Any, begin: Any, own: int) -> None:
        shape, wide = self.shape, count_of(own, self.lanes) * self.lanes
        with T.serial(0, shape.depth) as step:
            for column in range(own, wide):
                T.buffer_store(packed, T.float32(0), [begin + step * wide + column])
        with T.serial(0, own) as column, T.serial(0, shape.depth) as step:
            value = self.flat["key"].vload([shape.key.at(*self._of(which), first + column, step)])
            if shape.factor != 1.0:
                value = value * T.float32(shape.factor)
            T.buffer_store(packed, value, [begin + step * wide + column])

    def _pack_values(self, packed: Any, which: Any, first: Any, begin: Any, own: int) -> None:
        shape = self.shape

        def source(step: Any, offset: int) -> Any:
            return shape.value.at(*self._of(which), step, first + offset)

        packed_lines(packed, begin, self.flat["value"], source, shape.columns, own, self.lanes)

    def _score(self, keys: Any, which: Any, row: Any, scores: Any) -> None:
        """Emit the products of a block of queries with all keys."""
        shape, sizes, lanes = self.shape, self.sizes, self.lanes
        query, width = self.flat["query"], sizes.key_vectors * lanes
        matrix = count_of(shape.columns, lanes) * lanes * shape.depth
        start = shape.query.at(*self._of(which), row, 0)

        def block(part: Any, own: int) -> None:
            weights = keys[which * matrix + part * (width * shape.depth)]
            emit_call(
                multiplication(
                    sizes.rows, count_of(own, lanes), lanes, shape.depth,
                    row=shape.query.strides[2], line=self.row,
                ),
                query[start], weights, scores[part * width],
            )  # fmt: skip

        all_columns(shape.columns, width, block)

    def _normalize(self, scores: Any, i: Any, which: Any, row: Any, inverse: Any) -> None:
        """Emit exp of a row of scores less their largest, and one over their sum."""
        begin = i * self.row
        most = self._reduced(
            "most", LEAST, T.max, lambda at, n: self._masked(scores, begin, at, n, which, row)
        )

        def power(at: Any, n: int) -> Any:
            largest = T.broadcast(most[0], n) if n > 1 else most[0]
            build = Builder(kind("float32", n))
            less = build.named(scores.vload([begin + at], kind("float32", n)) - largest)
            T.buffer_store(scores, build.close(build.exp_of_negative(less)), [span(begin + at, n)])
            return scores.vload([begin + at], kind("float32", n))

        total = self._reduced("total", 0.0, lambda a, b: a + b, power)
        one = T.float32(1) / total[0]
        if self.shape.zero:
            nothing = T.float32(0)  # is unequal to what is not a number, and not below it
            one = (
                T.Select(total[0] > nothing, one, nothing)
                if self.shape.zero == NAN
                else T.Select(total[0] == nothing, nothing, one)
            )
        T.buffer_store(inverse, one, [i])

    def _masked(self, scores: Any, begin: Any, at: Any, lanes: int, which: Any, row: Any) -> Any:
        """Return some scores of a row with the masks, which are stored too."""
        value = scores.vload([begin + at], kind("float32", lanes))
        if not self.shape.masks:
            return value
        for k, mask in enumerate(self.shape.masks):
            place = mask.at(*self._of(which), row, at)
            value = value + self.flat[f"mask{k}"].vload([place], kind("float32", lanes))
        T.buffer_store(scores, value, [span(begin + at, lanes)])
        return scores.vload([begin + at], kind("float32", lanes))

    def _reduced(
        self, name: str, first: float, join: Callable[[Any, Any], Any], element: Callable[[Any, int], Any]
    ) -> Any:
        """Emit a reduction of a row, whose result is the first element of the buffer that is returned."""
        columns, lanes = self.shape.columns, self.lanes
        turns = columns // (UNROLLED * lanes)
        used = UNROLLED if turns else max(1, columns // lanes)
        found = named(name, T.alloc_buffer((used * lanes,), "float32"))
        for k in range(used):
            T.buffer_store(found, T.broadcast(T.float32(first), lanes), [span(k * lanes, lanes)])

        def take(at: Any, place: int, n: int) -> None:
            value = join(found.vload([place], kind("float32", n)), element(at, n))
            T.buffer_store(found, value, [span(place, n)])

        def take_whole(begin: int, n: int) -> None:
            value = join(found.vload([0], kind("float32", n)), found.vload([begin], kind("float32", n)))
            T.buffer_store(found, value, [span(0, n)])

        if turns:
            with T.serial(0, turns) as turn:
                for k in range(UNROLLED):
                    take(turn * (UNROLLED * lanes) + k * lanes, k * lanes, lanes)
        done = turns * UNROLLED * lanes
        for k, (offset, n) in enumerate(pieces(columns - done, lanes)):
            take(done + offset, k % used * lanes, n)
        for k in range(1, used):
            take_whole(k * lanes, lanes)
        half = lanes // 2
        while half:  # the upper half on the lower one
            take_whole(half, half)
            half //= 2
        return found

    def _combine(self, values: Any, which: Any, row: Any, scores: Any, inverse: Any) -> None:
        """Emit the sums of values, weighted by the powers, over the powers' sum."""
        shape, sizes, lanes = self.shape, self.sizes, self.lanes
        width = sizes.value_vectors * lanes
        matrix = count_of(shape.outputs, lanes) * lanes * shape.columns

        def block(part: Any, own: int) -> None:
            wide = count_of(own, lanes)
            sums = whole(named(f"sums_{wide}", T.alloc_buffer((sizes.rows * wide * lanes,), "float32")))
            weights = values[which * matrix + part * (width * shape.columns)]
            emit_call(
                multiplication(sizes.rows, wide, lanes, shape.columns, row=self.row),
                scores[0], weights, sums[0],
            )  # fmt: skip
            with T.serial(0, sizes.rows) as i:
                for j in range(wide):
                    for offset, n in pieces(min(lanes, own - j * lanes), lanes):
                        factor = T.broadcast(inverse[i], n) if n > 1 else inverse[i]
                        value = sums.vload([(i * wide + j) * lanes + offset], kind("float32", n)) * factor
                        if shape.zero:
                            zero = T.broadcast(T.float32(0), n) if n > 1 else T.float32(0)
                            value = T.Select(factor == zero, zero, value)
                        place = shape.result.at(
                            *self._of(which), row + i, part * width + (j * lanes + offset)
                        )
                        T.buffer_store(self.flat["result"], value, [span(place, n)])

        all_columns(shape.outputs, width, block)
