"""Template of a structure: its symbolic extents and constant columns as arrays.

`template` makes it once for a structure; `substitute` evaluates it for many candidates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmsched.features.batch.loops import KINDS, Floats, Ints
from wmsched.features.batch.structure import Quotients, SymbolicExtent
from wmsched.features.parallel import lanes, shared_by
from wmsched.features.step_features import heaviest, without_depths
from wmsched.schedules.loop_nest import PARALLEL, VECTORIZE, LoopNest, StageState
from wmsched.schedules.types import Stage, Workload

MAX_STAGES, MAX_PARALLELS, MAX_HELPERS = 24, 8, 12  # larger structures take the plain path
SINGLE = ("inside", "consumer_inner", "consumer_vector", "own_inner")


@dataclass(frozen=True)
class Products:
    """Symbolic extents (`structure.SymbolicExtent`): factor times the product of atoms.

    Parameters
    ----------
    factor : [...]
    atoms : [W, ...]
        Padded with atom 0, whose value is 1.
    """

    factor: Floats
    atoms: Ints

    @classmethod
    def of(cls, sizes: Sequence[Any]) -> Products:
        """Return the products of a list of `SymbolicExtent`, integers, or None (zero)."""
        unknown = [(k, size) for k, size in enumerate(sizes) if isinstance(size, SymbolicExtent)]
        factor = np.array(
            [x.factor if isinstance(x, SymbolicExtent) else x or 0 for x in sizes], dtype=np.float64
        )
        atoms = np.zeros((max((len(x.atoms) for _, x in unknown), default=0), len(sizes)), dtype=np.int64)
        for k, size in unknown:
            atoms[: len(size.atoms), k] = size.atoms
        return cls(factor, atoms)


@dataclass(frozen=True)
class Template:
    """A structure's part in phi. Loops are the heaviest stage's, innermost first.

    Parameters
    ----------
    row : float32 [P]
        phi of one candidate: valid in the columns that do not depend on the numbers.
    source, reads
        The heaviest stage's operation, and its present reads.
    totals, rests : Products [C]
        The quotients' operands; `depth` is their longest chain.
    extents : Products [D]
    tiles : Products [D, I]
        Extent of each iterator of the operation in each loop.
    loops : int [3, D]
        Kind (0 spatial, 1 reduction, 2 mixed), annotation, and iterator of the last part.
    works : Products [MAX_STAGES]
        Iterations of each stage in use. `weights` [4, MAX_STAGES] are 1 for stages that exist, that
        are at the root, that are at the root and not parallel, that are vectorised.
    lanes, shared : Products [MAX_STAGES]
        See `parallel.lanes` and `parallel.shared_by`.
    parallels : Products [MAX_PARALLELS]
        Extents of the parallel loops.
    helpers : Products [MAX_HELPERS]
        Iterations of the loops around each attached helper.
    single : Products [len(SINGLE)]
        Iterations of the consumer below the heaviest stage; its innermost loop; its vector; the
        heaviest stage's innermost spatial loops. Zero where there is none.
    unrolls : int [1 + MAX_STAGES]
        Number of each stage's unroll pragma (0: none), the heaviest stage first.
    vector : int
        Number of the vectorised loop; -1 for none.
    attached : bool
        Whether the heaviest stage is computed at a consumer.
    """

    row: NDArray[np.float32]
    source: Stage
    reads: tuple[Any, ...]
    depth: int
    totals: Products
    rests: Products
    extents: Products
    tiles: Products
    loops: Ints
    works: Products
    weights: Floats
    lanes: Products
    shared: Products
    parallels: Products
    helpers: Products
    single: Products
    unrolls: Ints
    vector: int
    attached: bool


def template(
    steps: Sequence[Sequence[Any]], nest: LoopNest, tape: Quotients, workload: Workload
) -> Template | None:
    """Return the template of a structure; None if only the plain path can handle it.

    Parameters
    ----------
    steps
        Steps of some candidate of the structure.
    nest, tape
        Result of `structure.follow`.
    """
    main, compute = heaviest(nest)
    if main is None or main.source is None or not main.loops:
        return None
    inner_first = main.loops[::-1]
    vectors = [k for k, x in enumerate(inner_first) if x.ann == VECTORIZE]
    live = [s for s in nest.stages if s.role != "placeholder" and not s.inlined]
    parallels = [x.extent for s in live for x in s.loops if x.ann == PARALLEL]
    consumer = main.at[0] if main.at is not None else None
    beside = [x.extent for x in consumer.loops if x.ann == VECTORIZE] if consumer is not None else []
    helpers = [s for s in compute if s is not main and s is not consumer]
    if max(len(vectors), len(beside)) > 1 or len(live) > MAX_STAGES or len(parallels) > MAX_PARALLELS:
        return None
    around = [_product(s.at[0].loops[: s.at[1] + 1]) for s in helpers if s.at is not None]
    if len(around) > MAX_HELPERS or any(x.kind not in KINDS for x in main.loops):
        return None
    single: list[Any] = [None] * len(SINGLE)
    if consumer is not None and main.at is not None:
        inner = consumer.loops[-1].extent if consumer.loops else None
        own = next((k for k, x in enumerate(inner_first) if x.kind != "S"), len(inner_first))
        single = [
            _product(consumer.loops[main.at[1] + 1 :]),
            inner,
            beside[0] if beside else None,
            _product(inner_first[:own]),
        ]
    weights = np.zeros((4, MAX_STAGES))
    for k, s in enumerate(live):
        root = s.at is None
        serial = root and not any(x.ann == PARALLEL for x in s.loops)
        weights[:, k] = 1, root, serial, any(x.ann == VECTORIZE for x in s.loops)
    loops = [(KINDS.index(x.kind), x.ann, x.parts[-1][0]) for x in inner_first]
    unrolls = [s.unroll.atoms[0] if isinstance(s.unroll, SymbolicExtent) else 0 for s in (main, *live)]
    depth, quotients = tape.depth, list(tape.quotients)  # phi divides extents too
    return Template(
        row=without_depths(steps, nest, workload),
        source=main.source,
        reads=main.reads,
        depth=depth,
        totals=Products.of([total for total, _ in quotients]),
        rests=Products.of([rest for _, rest in quotients]),
        extents=Products.of([x.extent for x in inner_first]),
        tiles=_tiles(main),
        loops=np.array(loops, dtype=np.int64).reshape(-1, 3).T,
        works=Products.of([_product(s.loops) for s in live]),
        weights=weights,
        lanes=Products.of([lanes(s) for s in live]),
        shared=Products.of([shared_by(s) for s in live]),
        parallels=Products.of(parallels),
        helpers=Products.of(around),
        single=Products.of(single),
        unrolls=np.array(unrolls + [0] * (1 + MAX_STAGES - len(unrolls)), dtype=np.int64),
        vector=vectors[0] if vectors else -1,
        attached=consumer is not None,
    )


def _product(loops: Sequence[Any]) -> Any:
    total: Any = 1
    for x in loops:
        total = x.extent * total
    return total


def _tiles(main: StageState) -> Products:
    """Return the extent of each iterator in each loop, innermost first: [D, I]."""
    assert main.source is not None
    count = len(main.source.iters)
    runs: dict[int, Any] = {}
    for depth, x in enumerate(reversed(main.loops)):
        for it, extent in x.parts:
            if 0 <= it < count:
                place = depth * count + it
                runs[place] = extent * runs.get(place, 1)
    found, places, shape = Products.of(list(runs.values())), list(runs), (len(main.loops), count)
    factor, atoms = np.ones(len(main.loops) * count), np.zeros((len(found.atoms), *shape), dtype=np.int64)
    factor[places] = found.factor
    atoms.reshape(len(atoms), len(factor))[:, places] = found.atoms
    return Products(factor.reshape(shape), atoms)
