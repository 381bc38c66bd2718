"""Columns of the heaviest stage's memory traffic, innermost block and unrolled body."""

from __future__ import annotations

from wmsched.features.table.column import Column, Group

_LEVELS = (("l1", "32 KiB"), ("l2", "1 MiB"), ("l3", "16 MiB"))

TRAFFIC = Group(
    "Memory traffic of the heaviest stage",
    "An analytical cache model with three caches of fixed size: 32 KiB, 1 MiB and 16 MiB. The working set of "
    "the d innermost loops is the bytes that they touch of each read and of the output. An element has 4 "
    "bytes, the last dimension is rounded up to 16 elements. A cache holds the largest working set, from the "
    "inside out, that is no larger than it; where none is, that of one iteration stands in. NaN where the "
    "compute DAG is unknown, and for a trace's block whose iterators a layout transformation replaced.",
    (
        *(
            Column(f"fit_iterations_{level}", "log2(1 + iterations)",
                   f"Iterations whose working set a cache of {size} holds.",
                   "product of the innermost loops whose working set fits")
            for level, size in _LEVELS
        ),
        *(
            Column(f"traffic_{level}", "log2(1 + cache lines)",
                   f"Lines of 64 bytes that the stage moves into a cache of {size}.",
                   f"working set * max(1, iterations / fit_iterations_{level}) / 64")
            for level, size in _LEVELS
        ),
        *(
            Column(f"traffic_per_iteration_{level}", "log2(bytes / iteration)",
                   f"Bytes that an iteration brings into a cache of {size}.",
                   f"working set / fit_iterations_{level}")
            for level, size in _LEVELS
        ),
    ),
)  # fmt: skip

_READS = (("0", "largest"), ("1", "second largest"))

KERNEL = Group(
    "Innermost block of the heaviest stage",
    "The block is the stage's innermost spatial loops, without a reduction between them; `loops` are those "
    "longer than one. lanes: length of the innermost vectorised loop, or 1. registers: ceil(lanes / 16), "
    "vector registers of 16 float32 that one vector fills. fmas: vector multiplies of a block, "
    "max(1, product of the block / lanes * registers). NaN where the compute DAG is unknown.",
    (
        Column("accumulators", "log2(1 + vector registers)",
               "Registers that hold partial sums: what the spatial loops inside of the outermost reduction "
               "keep. More than the processor has are spilled.",
               "product of the loops within the outermost reduction that reduce nothing / lanes * registers"),
        Column("accumulator_reuse", "log2(1 + iterations)",
               "Multiplies that an accumulator takes before the block is left.",
               "product of the reduction loops right around the block"),
        Column("block_loads", "log2(1 + loads)",
               "Register loads of one run of the block, each element of a read once.",
               "sum over reads of the product of their iterators' extents in the block; "
               "along a contiguous vector registers are counted, not elements"),
        Column("block_loads_per_fma", "log2(loads / multiply)",
               "Loads for each vector multiply of the block.", "max(block loads, 0.001) / fmas"),
        Column("block_gathers", "log2(1 + loads)",
               "Loads of the block that go element by element, for the vector strides through the read.",
               "block loads of reads that the vectorised iterator does not index contiguously"),
        Column("set_conflict_max", "log2(1 + cache lines)",
               "Lines of one read that compete for one set of the first cache.",
               "maximum over reads of the product over dimensions with a stride of 64 bytes or more of "
               "max(1, extent * gcd(stride, 4096) / 4096); extents are those of the block and of the "
               "reductions right around it"),
        Column("set_conflict_sum", "log2(1 + cache lines)", "The same for all reads together.",
               "sum over reads"),
        Column("pages_max", "log2(1 + pages)", "Pages of 4 KiB of one read that the block touches.",
               "maximum over reads of the product over dimensions with a stride of 64 bytes or more of "
               "extent, where the stride is a page or more, else max(1, extent * stride / 4096)"),
        *(
            Column(f"reduce_stride_{k}", "log2(1 + bytes), or -1",
                   f"Step of the innermost reduction loop through the {which} read; -1 without a loop or "
                   "a read.",
                   "4 * distance of neighbours in a tensor stored row by row; 0 where it does not move")
            for k, which in _READS
        ),
        *(
            Column(f"spatial_stride_{k}", "log2(1 + bytes), or -1",
                   f"Step of the block's innermost loop that is no vector through the {which} read; -1 "
                   "without a loop or a read.",
                   "4 * distance of neighbours in a tensor stored row by row; 0 where it does not move")
            for k, which in _READS
        ),
        Column("vector_waste", "lanes / lanes in use",
               "Lanes of the registers for each lane that the vector fills: 1 full, 16 without a vector.",
               "16 * registers / lanes"),
    ),
)  # fmt: skip

BODY = Group(
    "Unrolled body of the heaviest stage",
    "The body is the straight line of code that is left when the innermost loops are unrolled: up to the "
    "number of the unroll pragma, or with an unroll annotation. An element that it reads twice is loaded "
    "once. What the loops right around it do not move is loaded once for all their iterations; runs are "
    "these iterations. fmas: max(1, product of the body's loops / lanes * registers). At least 0.0001 a "
    "multiply. NaN where the compute DAG is unknown.",
    (
        Column("body_loads_per_fma", "log2(loads / multiply)", "Loads for each vector multiply.",
               "sum over reads of loads / runs, / fmas"),
        Column("body_gathers_per_fma", "log2(loads / multiply)",
               "Loads that go element by element for each vector multiply.",
               "sum over gathered reads of loads / runs, / fmas"),
        Column("body_stores_per_fma", "log2(stores / multiply)",
               "Stores of the output for each vector multiply.", "vectors of the output / runs / fmas"),
        Column("body_held", "log2(1 + vector registers)",
               "Registers that hold what is loaded before the loops around the body, and the output where "
               "these do not move it.",
               "sum over reads and the output with runs > 1 of the registers they fill"),
    ),
)  # fmt: skip
