"""Lists of transform steps as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

small = st.integers(0, 12)
sizes = st.lists(st.integers(1, 64), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("AN"), small, small, st.integers(0, 11)),
        st.tuples(st.just("FU"), small, st.lists(small, min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("PR"), small, small, st.just("auto_unroll_max_step$64")),
        st.tuples(st.just("RE"), small, st.lists(small, max_size=5, unique=True)),
        st.tuples(
            st.just("SP"), small, small, st.one_of(st.none(), st.integers(1, 512)), sizes, st.integers(0, 1)
        ),
        st.tuples(st.just("FSP"), small, small, small, st.integers(1, 4)),
        st.tuples(st.just("FFSP"), small, small, st.lists(small, max_size=3), small, st.integers(0, 1)),
        st.tuples(st.just("SA"), small, small, small, small),
        st.tuples(st.just("CA"), small, small, small),
        st.tuples(st.sampled_from(["CI", "CR"]), small),
        st.tuples(st.just("CHR"), small, st.just("shared"), st.lists(small, max_size=3)),
        st.tuples(st.just("CHW"), small, st.just("local")),
        st.tuples(st.just("RF"), small, small, small),
    ).map(list),
    max_size=25,
)
