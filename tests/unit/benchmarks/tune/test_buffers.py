"""In a round all programs get the same tensors; in the next others, between gaps of another size."""

from __future__ import annotations

import numpy as np

from benchmarks.tune.buffers import GAP_PAGES, PAGE, Buffers

SHAPES = [((2, 3), "float32"), ((4,), "int64")]


def test_a_round_shares_its_tensors_and_the_next_has_others():
    made = []

    def make(shape, dtype):
        made.append(np.empty(shape, dtype))
        return made[-1]

    filled: list[np.ndarray] = []
    buffers = Buffers(make, filled.append)
    first = buffers.at(0, SHAPES)
    assert [(one.shape, one.dtype.name) for one in first] == SHAPES
    other = buffers.at(0, [SHAPES[0], ((2, 2), "int64")])  # a program with a weight laid out anew
    assert other[0] is first[0] and other[1].shape == (2, 2)
    later = buffers.at(1, SHAPES)
    assert not any(new is old for new in later for old in first)
    gaps = [one.nbytes for one in made if one.dtype == np.int8]
    assert len(gaps) == 5 and len(set(gaps)) > 1
    assert len(filled) == 5 and not any(one.dtype == np.int8 for one in filled)
    assert all(gap % PAGE == 0 and GAP_PAGES[0] * PAGE <= gap <= GAP_PAGES[1] * PAGE for gap in gaps)


def test_the_gaps_are_the_same_in_every_run():
    def sizes() -> list[int]:
        made = []
        buffers = Buffers(lambda shape, dtype: made.append(shape), lambda tensor: None)
        for number in range(3):
            buffers.at(number, SHAPES)
        return made

    assert sizes() == sizes()
