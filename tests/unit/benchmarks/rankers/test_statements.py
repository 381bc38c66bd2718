"""The statements of a program as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from toy_dataset import program

from benchmarks.rankers.statements import ACCESSES, LOOPS, MOST, WIDTH, statement_rows, statements

MATMUL = """\
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((32, 128), "float32"), C: T.Buffer((64, 128), "float32")):
    for i_outer in T.parallel(8):
        T.attr(T.iter_var(i_outer, None, "DataPar", ""), "pragma_auto_unroll_max_step", 16)
        for i_inner, k in T.grid(8, 32):
            for j in T.vectorized(128):
                C[i_inner + i_outer * 8, j] = C[i_inner + i_outer * 8, j] + A[i_inner + i_outer * 8, k] * B[k, j]
"""  # noqa: E501


def test_loops_are_told_from_the_innermost_with_their_steps_through_each_tensor():
    (update,) = statements(MATMUL)
    assert update.operator == "+="
    assert [(loop.extent, loop.kind) for loop in update.loops] == [
        (128, "vectorized"), (32, ""), (8, ""), (8, "parallel")
    ]  # fmt: skip
    # C, then the reads by size: B [32, 128] before A [64, 32]
    assert update.sizes == (64 * 128, 32 * 128, 64 * 32)
    assert [loop.strides for loop in update.loops] == [
        (1.0, 1.0, 0.0), (0.0, 128.0, 1.0), (128.0, 0.0, 32.0), (1024.0, 0.0, 256.0)
    ]  # fmt: skip


def test_a_fused_loop_whose_first_turns_a_division_hides_still_has_a_step():
    text = "C = T.Buffer((64,))\nfor i in T.parallel(32):\n    C[i // 8 * 16] = 1.0\n"
    (store,) = statements(text)
    assert store.loops[0].strides == (pytest.approx(48 / 31),)


def test_the_same_program_with_other_tiles_has_other_numbers_and_an_equal_one_the_same():
    rows = [statement_rows(program("red", 128, 16, outer, 4, "T.parallel")) for outer in (1, 4, 4)]
    assert rows[0].shape == (2, WIDTH)
    assert not np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[1], rows[2])


def test_text_without_a_store_is_one_row_of_zeros():
    for text in ("", "split conv2d x0 4 by 1 4", "C[", "x = [1"):
        rows = statement_rows(text)
        assert rows.shape == (1, WIDTH) and not rows.any()


def test_only_the_statements_that_run_most_are_kept_in_their_order():
    lines = [f"for i in range({n + 2}):\n    A[i] = B[i] * {n}" for n in range(MOST + 3)]
    rows = statement_rows("\n".join(lines))
    assert rows.shape == (MOST, WIDTH)
    trips = rows[:, 1]  # of the innermost loop: ascending as in the text, the three least left out
    assert (np.diff(trips) > 0).all() and trips[0] == pytest.approx(np.log2(1 + 5) / 3)


def test_a_deep_nest_and_hostile_text_give_finite_numbers():
    nest = "".join(f"{' ' * n}for v{n}=9:\n" for n in range(LOOPS + 20))
    deep = (
        nest
        + " " * (LOOPS + 20)
        + "A["
        + "(" * 300
        + "v0"
        + ")" * 300
        + "] = B[__import__('os').getcwd(), 9**9**9]"
    )
    for text in (deep, "for i in range(99999999999999999999):\n    A[i % 0, i // (1 - 1)] = B[i * 10**30]"):
        rows = statement_rows(text)
        assert rows.shape == (1, WIDTH) and np.isfinite(rows).all()
    assert ACCESSES * 2 < WIDTH
