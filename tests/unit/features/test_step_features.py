"""phi: the columns mean what their names say."""

import math

import numpy as np
from hypothesis import given, settings
from matmul_columns import AXES, MATMUL, READS, column
from step_lists import steps

from wmsched.features.step_features import FEATURE_NAMES, features
from wmsched.schedules.types import Access, Iter, Stage, Workload


def test_names_are_unique():
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)


def test_counts_parallel_and_vector():
    found = [
        ["SP", 2, 1, 64, [16], 1],
        ["AN", 2, 2, 2],
        ["AN", 2, 0, 3],
        ["PR", 2, 0, "auto_unroll_max_step$64"],
    ]
    assert column("count_SP", found) == 1
    assert column("count_ann_vectorize", found) == 1
    assert column("parallel_max", found) == np.float32(math.log2(65))
    assert column("parallel_balance", found) == 1.0
    assert column("unroll_main", found) == np.float32(math.log2(65))


def test_vector_strides_follow_the_accesses():
    # A vector along j: A[i, k] is broadcast, B[k, j] contiguous. Along i: A strided.
    along_j = [["AN", 2, 1, 2]]
    assert {column("main_vector_read0", along_j), column("main_vector_read1", along_j)} == {0.0, 1.0}
    along_i = [["AN", 2, 0, 2]]
    assert {column("main_vector_read0", along_i), column("main_vector_read1", along_i)} == {2.0, 0.0}
    assert column("main_vector_last_axis", along_j) == 1.0
    assert column("main_vector_last_axis", along_i) == 0.0


def test_weights_held_across_rows_are_gathered_once() -> None:
    """C[i, j] = A[i, k] W[j, k], vectorised along j: W's vectors gather."""
    dense = Workload(
        "dense",
        stages=(
            Stage("A", "placeholder", shape=(64, 64)),
            Stage("W", "placeholder", shape=(64, 64)),
            Stage(
                "C", "compute", AXES, (READS[0], Access(1, (((1, 1),), ((2, 1),)), (64, 64))), shape=(64, 64)
            ),
        ),
    )
    split = [["SP", 2, 1, 64, [16], 1], ["SP", 2, 3, 64, [4], 1]]  # i, jo, ji, ko, ki
    unroll = ["PR", 2, 0, "auto_unroll_max_step$4"]
    rows_out = [*split, ["RE", 2, [1, 3, 0, 4, 2]], ["AN", 2, 4, 2], unroll]  # jo ko i | ki ji
    columns_out = [*split, ["RE", 2, [3, 0, 1, 4, 2]], ["AN", 2, 4, 2], unroll]  # ko i jo | ki ji
    # Four reductions: four gathers of 16 elements for four multiplies, shared by 64 rows or by none.
    assert column("body_gathers_per_fma", rows_out, dense) == -2.0
    assert column("body_gathers_per_fma", columns_out, dense) == 4.0
    assert column("body_held", rows_out, dense) == np.float32(math.log2(5))
    # One of A's elements a multiply, one vector of C for the four, which the loop around moves.
    assert column("body_loads_per_fma", rows_out, dense) == np.float32(math.log2(1.25))
    assert column("body_stores_per_fma", rows_out, dense) == -2.0
    assert column("body_gathers_per_fma", rows_out, MATMUL) == np.float32(math.log2(1e-4))


def test_tiling_lowers_modelled_traffic():
    big = Workload(
        "big",
        stages=(
            Stage("A", "placeholder", shape=(1024, 1024)),
            Stage("B", "placeholder", shape=(1024, 1024)),
            Stage(
                "C",
                "compute",
                tuple(Iter(i.name, 1024, i.kind) for i in AXES),
                tuple(Access(a.stage, a.dims, (1024, 1024)) for a in READS),
                shape=(1024, 1024),
            ),
        ),
    )
    naive: list = [["RE", 2, [0, 1, 2]]]
    tiled = [
        ["SP", 2, 0, 1024, [32], 1],
        ["SP", 2, 2, 1024, [32], 1],
        ["SP", 2, 4, 1024, [32], 1],
        ["RE", 2, [0, 2, 4, 1, 5, 3]],
    ]
    assert column("traffic_l1", tiled, big) < column("traffic_l1", naive, big) - 2


@settings(max_examples=60, deadline=None)
@given(steps)
def test_any_steps_are_featurised(found):
    for workload in (MATMUL, Workload("unknown")):
        phi, texts = features([found, found], workload)
        assert phi.shape == (2, len(FEATURE_NAMES)) and phi.dtype == np.float32
        assert not np.isinf(phi).any()
        np.testing.assert_array_equal(phi[0], phi[1])
        assert len(texts[0]) == len(found)


def test_no_candidates():
    phi, texts = features([], MATMUL)
    assert phi.shape == (0, len(FEATURE_NAMES)) and texts == []
