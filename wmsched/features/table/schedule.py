"""phi: what both schedulers' schedules are told by. A trace's instructions count as the steps they equal."""

from __future__ import annotations

from wmsched.features.table.column import Column, Group, Scheduler
from wmsched.features.table.kernel import BODY, KERNEL, TRAFFIC

_ANSORS: Scheduler = "AutoScheduler"
_NTH = ("innermost", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")

_ACTIONS = Group(
    "Actions",
    "How often the schedule does what AutoScheduler's step of this code does, and which of a trace's "
    "instructions do the same.",
    (
        Column("count_AN", "steps", "A loop is vectorised, made parallel, unrolled or bound to an index.",
               "AN; Parallel, Vectorize, Unroll, Bind"),
        Column("count_FU", "steps", "Loops are fused.", "FU; Fuse"),
        Column("count_PR", "steps", "An unroll pragma is set.", "PR; blocks with a pragma above 0"),
        Column("count_RE", "steps", "Loops are reordered.", "RE; Reorder"),
        Column("count_SP", "steps", "A loop is split.", "SP; Split"),
        Column("count_FSP", "steps", "A loop is split as a step before split another.", "FSP",
               _ANSORS, native=False),
        Column("count_FFSP", "steps", "A loop is split by the product of what steps before split by.",
               "FFSP", _ANSORS, native=False),
        Column("count_SA", "steps", "A dimension's storage is padded to an alignment.", "SA; StorageAlign"),
        Column("count_CA", "steps", "A stage is computed at another's loop.",
               "CA; ComputeAt, ReverseComputeAt"),
        Column("count_CI", "steps", "A stage is inlined.", "CI; ComputeInline, ReverseComputeInline"),
        Column("count_CR", "steps", "A stage is computed at the root.", "CR", _ANSORS, native=False),
        Column("count_CHR", "steps", "A read goes through a copy.", "CHR; CacheRead"),
        Column("count_CHW", "steps", "The output is computed into a copy first.", "CHW; CacheWrite"),
        Column("count_RF", "steps", "A reduction loop becomes a spatial one of a stage of its own.",
               "RF; RFactor"),
        Column("count_ann_unroll", "loops", "Unrolled by annotation.", "AN of 1; loops left with it"),
        Column("count_ann_vectorize", "loops", "Vectorised.", "AN of 2; loops left with it"),
        Column("count_ann_parallel", "loops", "Parallel.", "AN of 3; loops left with it"),
        Column("count_ann_vthread", "loops", "Virtual threads.", "AN of 4; loops left with it"),
        Column("count_ann_bind", "loops", "Bound to a blockIdx or threadIdx.",
               "AN of any other number; loops left with it"),
        Column("steps", "steps", "Length of the schedule.",
               "steps; of a trace the instructions that change the program"),
    ),
)  # fmt: skip

_NEST = Group(
    "Stages and their loops",
    "A stage is in use if it is neither a placeholder nor inlined; a root is computed at no other. A stage's "
    "work is the product of its loops. A trace's blocks count as stages, but for initialisations "
    "and what is done to weights beforehand.",
    (
        Column("stages", "stages", "Stages after the schedule, placeholders among them.", "stages"),
        Column("inlined", "stages", "Inlined stages.", "stages"),
        Column("roots", "stages", "Stages in use that are roots.", "stages"),
        Column("attached", "stages", "Stages in use that are computed at another's loop.",
               "stages in use - roots"),
        Column("cache_stages", "stages", "Stages that cache reads and cache writes made.",
               "CHR and CHW stages; blocks of CacheRead that compute nothing"),
        Column("rfactor", "stages", "Stages that rfactor made.", "stages"),
        Column("parallel_max", "log2(1 + iterations)", "Extent of the longest parallel loop; 0 without one.",
               "maximum over stages in use"),
        Column("parallel_balance", "share",
               "How evenly the cores share that loop; 1 if all are busy to the end, 0 without one.",
               "extent / (waves * cores)"),
        Column("parallel_waves", "log2(1 + iterations)", "Iterations of that loop for the busiest core.",
               "ceil(extent / cores)"),
        Column("serial_root_share", "share", "Work of the roots that no parallel loop of theirs shares out.",
               "work of roots without a parallel loop / work of roots"),
    ),
)  # fmt: skip

_UNROLLING = Group(
    "Unrolling",
    "NaN where the compute DAG is unknown, but for `unroll_max`. The heaviest stage is the one that computes "
    "with most iterations; a stage with reads and a reduction counts four times.",
    (
        Column("unroll_main", "log2(1 + steps)", "Number of the heaviest stage's unroll pragma; 0 without.",
               "auto_unroll_max_step"),
        Column("unroll_max", "log2(1 + steps)", "Largest such number of a stage in use.",
               "maximum over stages in use"),
        Column("unrolled_body", "log2(1 + statements)",
               "Statements of the straight line that unrolling the heaviest stage leaves.",
               "product of its innermost loops but for a vectorised one, as far as that is no more than the "
               "pragma's number or they are unrolled by annotation"),
        Column("unroll_saturates", "0 or 1", "The innermost spatial loops are all unrolled.",
               "1 if unrolled body * lanes >= product of the innermost spatial loops"),
    ),
)  # fmt: skip

_MAIN = Group(
    "Loops of the heaviest stage",
    "Loops longer than one, innermost first. NaN where the compute DAG is unknown or there are fewer loops. "
    "The two reads are those of the largest tensors. NaN also in `main_vector_read*` and "
    "`main_vector_last_axis` for a trace's block whose iterators a layout transformation replaced.",
    (
        Column("main_vector", "log2(1 + lanes)", "Length of the innermost vectorised loop; 0 without one.",
               "extent"),
        Column("main_vector_last_axis", "0 or 1", "That loop runs along the output's last axis.",
               "1 if a part of it is the last spatial iterator"),
        *(
            Column(f"main_vector_read{k}", "code",
                   f"How the vector goes through the {which} read; -1 without a vector.",
                   "0 broadcast, 1 contiguous, 2 strided")
            for k, which in enumerate(("largest", "second largest"))
        ),
        Column("main_vector_full", "0 or 1", "The vector fills whole registers.",
               "1 if 16 divides its length"),
        Column("main_loops", "loops", "Loops longer than one.", "loops"),
        Column("main_attached", "0 or 1", "The stage is computed at another's loop.", "0 or 1"),
        Column("main_inner_spatial", "log2(1 + iterations)",
               "Tile of the innermost block: spatial loops without a reduction between them.",
               "product of the innermost spatial loops"),
        Column("main_registers", "log2(1 + vector registers)",
               "Registers of 16 float32 that this tile fills.",
               "tile / lanes * ceil(lanes / 16)"),
        Column("main_reduce_inner", "log2(1 + iterations)", "Reduction right around the tile.",
               "product of the reduction loops right around the innermost spatial ones"),
        *(
            Column(f"main_extent_{k}", "log2(1 + iterations)", f"Extent of the {which} loop.", "extent")
            for k, which in enumerate(_NTH)
        ),
        *(
            Column(f"main_reduction_{k}", "0 or 1", f"The {which} loop is a reduction.",
                   "1 if it runs along reduction iterators alone")
            for k, which in enumerate(_NTH[:4])
        ),
    ),
)  # fmt: skip

_NEIGHBOURS = Group(
    "Consumer and helpers of the heaviest stage",
    "The consumer is the stage that the heaviest is computed at: its columns, and "
    "`register_loads_per_iteration`, are NaN without one. Helpers are the other stages that compute. NaN "
    "where the compute DAG is unknown, but for `vector_stage_share`.",
    (
        Column("register_loads_per_iteration", "ratio",
               "Tile of the heaviest stage beside the consumer's iterations that it serves.",
               "product of the innermost spatial loops / max(1, consumer's tile)"),
        Column("consumer_vector", "log2(1 + lanes)",
               "Longest vectorised loop of the consumer; 0 without one.", "extent"),
        Column("consumer_tile", "log2(1 + iterations)",
               "Iterations of the consumer for each time the heaviest stage is computed.",
               "product of the consumer's loops inside of where the stage is computed"),
        Column("consumer_inner", "log2(1 + iterations)", "Extent of the consumer's innermost loop.",
               "extent"),
        Column("consumer_contiguous", "0 or 1", "The consumer's innermost loop is vectorised.", "0 or 1"),
        Column("helper_roots", "stages", "Helpers that are roots.", "stages"),
        Column("helper_attached", "stages", "Helpers that are computed at another's loop.", "stages"),
        Column("helper_recompute", "log2(1 + iterations)",
               "How often the most repeated helper is computed; 0 if all are roots.",
               "maximum over attached helpers of the product of the other's loops around them"),
        Column("helper_vector_share", "share", "Helpers with a vectorised loop; 0 without helpers.",
               "helpers with one / helpers"),
        Column("vector_stage_share", "share", "Work of all stages in use that have a vectorised loop.",
               "work of stages with one / work of stages"),
    ),
)  # fmt: skip

_SPLITS = Group(
    "Lengths of splits",
    "The first lengths that loops are split by, in the schedule's order; the outermost, which follows from "
    "them, is left out. NaN where there are fewer.",
    tuple(
        Column(f"split_{k}", "log2(1 + iterations)", f"Length number {k + 1}.", "length; 0 if not given")
        for k in range(8)
    ),
)

_OPERATION = Group(
    "The heaviest stage's operation",
    "Equal for all schedules whose heaviest stage is of one operation with the same reads. NaN where the "
    "compute DAG is unknown.",
    tuple(
        Column(*row, native=False)
        for row in (
            ("iterations", "log2(1 + iterations)", "Iterations of the operation.",
             "product of its iterators"),
            ("iterations_spatial", "log2(1 + iterations)", "Iterations that are no reduction.",
             "product of its spatial iterators"),
            ("iterations_reduce", "log2(1 + iterations)", "Iterations for each element of the output.",
             "product of its reduction iterators"),
            ("flops", "log2(1 + operations)", "Floating-point operations of the whole workload.",
             "as TVM counts them"),
            ("output_elements", "log2(1 + elements)", "Elements of the output.",
             "product of its spatial iterators"),
            ("reads", "reads", "Tensors that the operation reads.", "a tensor counts as often as it is read"),
            ("intensity", "log2(iterations / element)", "Arithmetic for each element moved.",
             "(1 + iterations) / (1 + elements of all reads and of the output)"),
            ("has_call", "0 or 1", "The body calls a mathematical function.",
             "1 if one begins with exp, tanh, erf, sqrt, pow or rsqrt"),
            ("has_max", "0 or 1", "The body takes a maximum.", "1 if it has a Max"),
        )
    ),
)  # fmt: skip

_TILE = Group(
    "Tile of all cores",
    "NaN where the heaviest stage is computed at no other.",
    (
        Column("tile_per_core", "log2(1 + iterations)", "The consumer's tile for all cores together.",
               "consumer's tile * cores"),
    ),
)  # fmt: skip

_THREADS = Group(
    "Threads",
    "The only column that takes the number of threads that programs run on here; the ranker subtracts it "
    "from its margin instead of giving it to the trees.",
    (
        Column("parallel_slowdown", "log2(ratio)",
               "Time of the busiest thread beside an equal share for each: 0 with one thread or where all "
               "work is dealt evenly, log2(threads) where nothing is parallel.",
               "threads * sum of w ceil(P / threads) / P over sum of w: P is the parallel loop that a stage "
               "lies in, w its iterations, a vector of up to 16 at a time"),
    ),
)  # fmt: skip

PHI: tuple[Group, ...] = (
    _ACTIONS, _NEST, _UNROLLING, _MAIN, TRAFFIC, _NEIGHBOURS, _SPLITS, _OPERATION, _TILE, KERNEL, BODY,
    _THREADS,
)  # fmt: skip
